//! The page's words, in English and Japanese.

/// One language.
pub(super) struct Words {
    /// As in `lang`.
    pub(super) code: &'static str,
    pub(super) title: &'static str,
    pub(super) account: &'static str,
    pub(super) used: &'static str,
    pub(super) left: &'static str,
    pub(super) of: &'static str,
    pub(super) no_quota: &'static str,
    pub(super) since_start: &'static str,
    pub(super) renews: &'static str,
    pub(super) expires: &'static str,
    pub(super) throttled: &'static str,
    pub(super) cut: &'static str,
    pub(super) now: &'static str,
    pub(super) down: &'static str,
    pub(super) up: &'static str,
    pub(super) limit: &'static str,
    pub(super) connections: &'static str,
    pub(super) devices: &'static str,
    pub(super) unknown: &'static str,
    pub(super) log_in: &'static str,
    pub(super) no_log_in: &'static str,
    pub(super) strange_name: &'static str,
    pub(super) no_accounts: &'static str,
    pub(super) refused: &'static str,
    /// The password's page, and the link to it.
    pub(super) password: &'static str,
    pub(super) user: &'static str,
    pub(super) old: &'static str,
    pub(super) new: &'static str,
    pub(super) again: &'static str,
    pub(super) rule: &'static str,
    pub(super) change: &'static str,
    pub(super) back: &'static str,
    pub(super) changed: &'static str,
    pub(super) wrong: &'static str,
    pub(super) differ: &'static str,
    pub(super) same: &'static str,
    pub(super) busy: &'static str,
    /// The account had a try within a minute.
    pub(super) soon: &'static str,
    pub(super) away: &'static str,
    /// The change may be kept all the same.
    pub(super) late: &'static str,
    pub(super) no_form: &'static str,
    pub(super) strange_form: &'static str,
    /// Of an account without a user.
    pub(super) no_password: &'static str,
    /// Of a relay without a database of accounts.
    pub(super) no_passwords: &'static str,
    pub(super) speed: &'static str,
    /// What a speed test costs.
    pub(super) speed_cost: &'static str,
    pub(super) speed_no_script: &'static str,
    pub(super) speed_device: &'static str,
    pub(super) speed_tunnel: &'static str,
    pub(super) speed_begin: &'static str,
    pub(super) speed_running: &'static str,
    pub(super) speed_done: &'static str,
    pub(super) speed_failed: &'static str,
    pub(super) speed_busy: &'static str,
    pub(super) set_up: &'static str,
    pub(super) script: &'static str,
    pub(super) scan: &'static str,
    /// Where no proxy can be offered.
    pub(super) no_proxy: &'static str,
    pub(super) by_hand: &'static str,
    pub(super) port: &'static str,
    pub(super) secured: &'static str,
    /// A system, and where its setting is.
    pub(super) systems: &'static [(&'static str, &'static str)],
}

static ENGLISH: Words = Words {
    code: "en",
    title: "Relay",
    account: "Account",
    used: "Used",
    left: "Left",
    of: "of",
    no_quota: "No limit on volume",
    since_start: "since the relay started",
    renews: "Begins anew",
    expires: "Valid until",
    throttled: "The volume is used up. Connections go on at a lower rate.",
    cut: "The volume is used up. Connections are refused until it begins anew.",
    now: "Now",
    down: "Receiving",
    up: "Sending",
    limit: "at most",
    connections: "Connections",
    devices: "Devices",
    unknown: "This device is not known, so no account is shown.",
    log_in: "Log in with user and password",
    no_log_in: "Passwords are not accepted here, because others could read them on the way. Open this page by https://, or ask the operator.",
    strange_name: "Open this page by the relay's address, as http://192.0.2.1:3128/, to see your account or to log in. Others could have made this name lead here.",
    no_accounts: "This relay has no accounts. There is nothing to log in to.",
    refused: "The account is not shown:",
    password: "Change a password",
    user: "User",
    old: "Password",
    new: "New password",
    again: "New password again",
    rule: "8 letters or more.",
    change: "Change",
    back: "Back",
    changed: "Changed. All devices of this user need the new password from now on.",
    wrong: "User or password is wrong. Nothing was changed.",
    differ: "The two new passwords differ. Nothing was changed.",
    same: "The new password is the old one. Nothing was changed.",
    busy: "Others change theirs at this moment. Try again.",
    soon: "An account has one try a minute, and had it. Wait a minute. Nothing was changed.",
    away: "The relay cannot reach its accounts. Try again later.",
    late: "There was no answer in time. The new password may count already: try it, and then the old one.",
    no_form: "This is not the form of this page. Nothing was changed.",
    strange_form: "The form came from another page. Open this one, and try again.",
    no_password: "This account has no password: its devices are known by their address or their relay. The operator changes it.",
    no_passwords: "This relay has no passwords. Accounts in its configuration file are known by their addresses, and the operator changes them there.",
    speed: "Speed",
    speed_cost: "A test takes up to half a minute and up to 80 MB. They count as used.",
    speed_no_script: "The test needs JavaScript.",
    speed_device: "This device to the relay",
    speed_tunnel: "The relay to",
    speed_begin: "Measure",
    speed_running: "Measuring …",
    speed_done: "Measured.",
    speed_failed: "Not measured:",
    speed_busy: "Another test runs, or has just run. Wait a minute.",
    set_up: "Set up a device",
    script: "Address of the setup script",
    scan: "Scan it with a phone, and paste the address into its proxy setting.",
    no_proxy: "The relay takes passwords within TLS alone, and no setting can be shown here. Open this page by https:// and the relay's name, or ask the operator.",
    by_hand: "By hand: proxy server",
    port: "port",
    secured: "with TLS (HTTPS proxy)",
    systems: &[
        (
            "Windows",
            "Settings → Network & internet → Proxy → Use setup script → Set up. Paste the address.",
        ),
        (
            "macOS",
            "System Settings → Network → Wi-Fi → Details → Proxies → Automatic proxy configuration.",
        ),
        (
            "iPhone, iPad",
            "Settings → Wi-Fi → details of the network (i) → Configure Proxy → Automatic. Paste the address.",
        ),
        (
            "Android",
            "Settings → Network & internet → Internet → the network → Edit (pencil) → Advanced options → Proxy → Proxy Auto-Config.",
        ),
        ("Linux (GNOME)", "Settings → Network → Proxy → Automatic. Paste the address."),
        (
            "Firefox",
            "Settings → Network Settings → Automatic proxy configuration URL. Paste the address.",
        ),
    ],
};

static JAPANESE: Words = Words {
    code: "ja",
    title: "中継サーバー",
    account: "アカウント",
    used: "使用量",
    left: "残り",
    of: "/",
    no_quota: "通信量の上限はありません",
    since_start: "中継サーバーの起動後",
    renews: "更新日時",
    expires: "有効期限",
    throttled: "通信量を使い切りました。低速で接続が続きます。",
    cut: "通信量を使い切りました。更新日時まで接続できません。",
    now: "現在",
    down: "受信",
    up: "送信",
    limit: "上限",
    connections: "接続数",
    devices: "端末",
    unknown: "この端末は登録されていないため、アカウントは表示されません。",
    log_in: "ユーザー名とパスワードでログイン",
    no_log_in: "途中で読み取られるおそれがあるため、ここではパスワードを使えません。https:// で開くか、管理者に相談してください。",
    strange_name: "アカウントの表示やログインには、http://192.0.2.1:3128/ のように中継サーバーのアドレスでこのページを開いてください。この名前は他人が設定したものかもしれません。",
    no_accounts: "この中継サーバーにアカウントはありません。ログインは不要です。",
    refused: "アカウントを表示できません:",
    password: "パスワードの変更",
    user: "ユーザー名",
    old: "パスワード",
    new: "新しいパスワード",
    again: "新しいパスワード(確認)",
    rule: "8 文字以上",
    change: "変更",
    back: "戻る",
    changed: "変更しました。このユーザーの端末では、今後新しいパスワードが必要です。",
    wrong: "ユーザー名またはパスワードが違います。変更していません。",
    differ: "新しいパスワードが一致しません。変更していません。",
    same: "新しいパスワードが今と同じです。変更していません。",
    busy: "ほかの人が変更中です。もう一度試してください。",
    soon: "パスワードの変更は、アカウントごとに 1 分に 1 回です。1 分ほど待ってください。変更していません。",
    away: "アカウントの情報に接続できません。後でもう一度試してください。",
    late: "時間内に応答がありませんでした。新しいパスワードがすでに有効な場合があります。新しいパスワード、次に古いパスワードを試してください。",
    no_form: "このページのフォームではありません。変更していません。",
    strange_form: "別のページから送られたフォームです。このページを開いて、もう一度試してください。",
    no_password: "このアカウントにパスワードはありません。端末はアドレスまたは中継サーバーで識別されます。変更は管理者が行います。",
    no_passwords: "この中継サーバーにパスワードはありません。設定ファイルのアカウントはアドレスで識別され、変更は管理者が行います。",
    speed: "速度",
    speed_cost: "測定は最長 30 秒、最大 80 MB です。使用量に含まれます。",
    speed_no_script: "測定には JavaScript が必要です。",
    speed_device: "この端末と中継サーバーの間",
    speed_tunnel: "中継サーバーと次の中継先の間:",
    speed_begin: "測定する",
    speed_running: "測定中…",
    speed_done: "測定しました。",
    speed_failed: "測定できませんでした:",
    speed_busy: "ほかの測定が実行中か、終わったばかりです。1 分ほど待ってください。",
    set_up: "端末の設定",
    script: "設定スクリプトのアドレス",
    scan: "スマートフォンで読み取り、プロキシ設定に貼り付けてください。",
    no_proxy: "この中継サーバーは TLS の中でのみパスワードを受け付けるため、ここでは設定を表示できません。https:// と中継サーバーの名前で開くか、管理者に相談してください。",
    by_hand: "手動設定: プロキシサーバー",
    port: "ポート",
    secured: "TLS(HTTPS プロキシ)",
    systems: &[
        (
            "Windows",
            "設定 → ネットワークとインターネット → プロキシ → セットアップ スクリプトを使う → セットアップ。アドレスを貼り付けます。",
        ),
        (
            "macOS",
            "システム設定 → ネットワーク → Wi-Fi → 詳細 → プロキシ → 自動プロキシ構成。アドレスを貼り付けます。",
        ),
        (
            "iPhone, iPad",
            "設定 → Wi-Fi → ネットワークの詳細 (i) → プロキシを構成 → 自動。アドレスを貼り付けます。",
        ),
        (
            "Android",
            "設定 → ネットワークとインターネット → インターネット → ネットワーク → 編集 (鉛筆) → 詳細オプション → プロキシ → プロキシの自動設定。",
        ),
        ("Linux (GNOME)", "設定 → ネットワーク → プロキシ → 自動。アドレスを貼り付けます。"),
        ("Firefox", "設定 → ネットワーク設定 → 自動プロキシ設定スクリプト URL。"),
    ],
};

/// The language that `Accept-Language` wants most (RFC 9110 §12.5.4); English where it wants neither.
pub(super) fn of<'a>(fields: impl Iterator<Item = &'a str>) -> &'static Words {
    let mut best = (0.0, &ENGLISH);
    for range in fields.flat_map(|field| field.split(',')) {
        let mut parts = range.split(';');
        let tag = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok());
        let quality = quality.unwrap_or(1.0);
        let words = match tag.split('-').next() {
            Some("ja") => &JAPANESE,
            Some("en") => &ENGLISH,
            _ => continue,
        };
        // of two that are wanted alike the first counts
        if quality > best.0 {
            best = (quality, words);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_language_is_chosen() {
        let code = |field: &str| of([field].into_iter()).code;
        assert_eq!(code("ja"), "ja");
        assert_eq!(code("ja-JP,ja;q=0.9,en;q=0.8"), "ja");
        assert_eq!(code("en;q=0.5, ja;q=0.7"), "ja");
        assert_eq!(code("en-GB,ja;q=0.9"), "en");
        for neither in ["", "de", "ja;q=0", ";;,q=", "*"] {
            assert_eq!(code(neither), "en", "{neither}");
        }
    }
}
