//! The kinds of alerts.

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertKind {
    /// There is no tunnel to a peer.
    LineDown,
    /// An account has used most of its quota.
    QuotaLow,
    /// An account has used all of its quota.
    QuotaUsedUp,
    /// A certificate ends soon, and nothing renews it.
    CertificateEnding,
    /// Orders of a certificate fail.
    CertificateNotRenewed,
    /// The accounts' database does not answer.
    DatabaseAway,
    /// A disk has little room.
    DiskFull,
    /// Something cannot be written to disk.
    NotSaved,
    /// Nothing is wrong: somebody tries whether alerts arrive.
    Trial,
}

impl AlertKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::LineDown,
        Self::QuotaLow,
        Self::QuotaUsedUp,
        Self::CertificateEnding,
        Self::CertificateNotRenewed,
        Self::DatabaseAway,
        Self::DiskFull,
        Self::NotSaved,
        Self::Trial,
    ];

    /// Its name in messages, in the status and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LineDown => "line-down",
            Self::QuotaLow => "quota-low",
            Self::QuotaUsedUp => "quota-used-up",
            Self::CertificateEnding => "certificate-ending",
            Self::CertificateNotRenewed => "certificate-not-renewed",
            Self::DatabaseAway => "database-away",
            Self::DiskFull => "disk-full",
            Self::NotSaved => "not-saved",
            Self::Trial => "trial",
        }
    }

    /// The kind of this name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}
