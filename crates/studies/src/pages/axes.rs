//! Axes that this study declares.

use ekiden_lab::cell::axis::{Axis, ValueKind, axis};

pub(crate) static AXES: &[Axis] = &[
    axis(
        "page",
        "page",
        ValueKind::Word(&["small", "news", "application"]),
        "page that a browser loads: `small` has 8 objects on 2 hosts, `news` 70 on 6, `application` five calls in a row and ten objects",
    ),
    axis(
        "line",
        "line",
        ValueKind::Word(&["idle", "download"]),
        "what else goes over the line meanwhile: nothing, or a download the same way",
    ),
];
