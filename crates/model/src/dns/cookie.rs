//! DNS cookies (RFC 7873, RFC 9018): what a client and a server show each other to prove that they receive what is sent
//! to their addresses. Secrets come from the driver.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher24;

/// A key for cookies, drawn at random.
pub type CookieSecret = [u8; 16];

/// A client's cookie (RFC 7873 §4.1).
pub type ClientCookie = [u8; 8];

/// The most bytes of a server's cookie, and the least (RFC 7873 §4.2).
const SERVER_MOST: usize = 32;
const SERVER_LEAST: usize = 8;
/// The version of the form below.
const VERSION: u8 = 1;
/// Of version, three reserved bytes, and time, before the hash.
const STAMPED: usize = 8;
/// A server's cookie holds for so many seconds (RFC 9018 §4.3).
const HOLDS: i64 = 3_600;
/// One from the future holds up to so many seconds ahead (RFC 9018 §4.3).
const AHEAD: i64 = 300;

/// A server's cookie of 8 to 32 bytes, which means nothing to anybody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerCookie {
    bytes: [u8; SERVER_MOST],
    length: usize,
}

impl ServerCookie {
    /// `None`: too short or too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < SERVER_LEAST {
            return None;
        }
        let mut padded = [0; SERVER_MOST];
        padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { bytes: padded, length: bytes.len() })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The content of a COOKIE option (RFC 7873 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    /// The client's half.
    pub client: ClientCookie,
    /// The server's half; `None`: the client does not know it.
    pub server: Option<ServerCookie>,
}

impl Cookie {
    /// Reads an option. `None`: its length is none that RFC 7873 §5.2.2 allows.
    pub fn read(option: &[u8]) -> Option<Self> {
        let (client, server) = option.split_first_chunk()?;
        let server = match server {
            [] => None,
            server => Some(ServerCookie::new(server)?),
        };
        Some(Self { client: *client, server })
    }

    /// The option.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut option = self.client.to_vec();
        option.extend_from_slice(self.server.as_ref().map_or(&[], ServerCookie::as_bytes));
        option
    }
}

/// The cookie of a client at `local` for a server. It changes with either address, so that it follows no client from
/// network to network (RFC 9018 §3, §8.1).
pub fn client_cookie(secret: &CookieSecret, local: IpAddr, server: SocketAddr) -> ClientCookie {
    let mut text = Vec::with_capacity(34);
    put_address(local, &mut text);
    put_address(server.ip(), &mut text);
    text.extend_from_slice(&server.port().to_be_bytes());
    SipHasher24::new_with_key(secret).hash(&text).to_le_bytes()
}

/// The server's cookie for a client, at `now` in seconds since 1970, modulo 2^32 (RFC 9018 §4).
pub fn server_cookie(
    secret: &CookieSecret,
    client: ClientCookie,
    address: IpAddr,
    now: u32,
) -> ServerCookie {
    let mut bytes = [0; SERVER_MOST];
    bytes[0] = VERSION;
    bytes[4..STAMPED].copy_from_slice(&now.to_be_bytes());
    let hash = stamped_hash(secret, client, &bytes[..STAMPED], address);
    bytes[STAMPED..2 * STAMPED].copy_from_slice(&hash);
    ServerCookie { bytes, length: 2 * STAMPED }
}

/// Whether a client shows a cookie that this server gave to its address within the last hour (RFC 9018 §4.3).
pub fn is_valid(secret: &CookieSecret, cookie: &Cookie, address: IpAddr, now: u32) -> bool {
    let Some(server) = &cookie.server else { return false };
    let Some((stamped, hash)) = server.as_bytes().split_first_chunk::<STAMPED>() else {
        return false;
    };
    let [version, _, _, _, time @ ..] = *stamped;
    // serial numbers (RFC 1982)
    let age = i64::from(now.wrapping_sub(u32::from_be_bytes(time)) as i32);
    version == VERSION
        && (-AHEAD..=HOLDS).contains(&age)
        && *hash == stamped_hash(secret, cookie.client, stamped, address)
}

/// RFC 9018 §4.4: SipHash-2-4 of the client's cookie, version, reserved bytes, time, and the client's address.
fn stamped_hash(
    secret: &CookieSecret,
    client: ClientCookie,
    stamped: &[u8],
    address: IpAddr,
) -> [u8; 8] {
    let mut text = Vec::with_capacity(32);
    text.extend_from_slice(&client);
    text.extend_from_slice(stamped);
    put_address(address, &mut text);
    SipHasher24::new_with_key(secret).hash(&text).to_le_bytes()
}

fn put_address(address: IpAddr, text: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(v4) => text.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => text.extend_from_slice(&v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn hex(text: &str) -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn makes_and_checks_the_cookies_of_rfc_9018_appendix_a() {
        // A.1, A.3, A.4 before and after the secret changes; the second has reserved bytes
        for (client, server, address, secret) in [
            (
                "2464c4abcf10c957",
                "010000005cf79f111f8130c3eee29480",
                "198.51.100.100",
                "e5e973e5a6b2a43f48e7dc849e37bfcf",
            ),
            (
                "fc93fc62807ddb86",
                "01abcdef5cf78f71a314227b6679ebf5",
                "203.0.113.203",
                "e5e973e5a6b2a43f48e7dc849e37bfcf",
            ),
            (
                "22681ab97d52c298",
                "010000005cf7c57926556bd0934c72f8",
                "2001:db8:220:1:59de:d0f4:8769:82b8",
                "dd3bdf9344b678b185a6f5cb60fca715",
            ),
            (
                "22681ab97d52c298",
                "010000005cf7c609a6bb79d16625507a",
                "2001:db8:220:1:59de:d0f4:8769:82b8",
                "445536bcd2513298075a5d379663c962",
            ),
        ] {
            let (bytes, secret) = (hex(server), hex(secret).try_into().unwrap());
            let address = address.parse().unwrap();
            let time = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
            let option = [hex(client), bytes.clone()].concat();
            let cookie = Cookie::read(&option).unwrap();
            assert!(is_valid(&secret, &cookie, address, time + 60), "{server}");
            assert_eq!(cookie.to_vec(), option);
            if bytes[1..4] == [0; 3] {
                let made = server_cookie(&secret, cookie.client, address, time);
                assert_eq!(made.as_bytes(), bytes, "{server}");
            }
        }
    }

    #[test]
    fn reads_only_the_lengths_of_rfc_7873() {
        for length in 0..60 {
            let allowed = length == 8 || (16..=40).contains(&length);
            assert_eq!(Cookie::read(&vec![7; length]).is_some(), allowed, "{length}");
        }
    }

    proptest! {
        #[test]
        fn a_cookie_holds_for_its_client_address_and_hour_alone(
            secret: [u8; 16], client: [u8; 8], address: u32, now: u32,
            bit in 0_usize..128, later in -4_000_i32..8_000,
        ) {
            let ip = |n: u32| IpAddr::V4(n.into());
            let made = server_cookie(&secret, client, ip(address), now);
            let cookie = Cookie { client, server: Some(made) };
            let then = now.wrapping_add_signed(later);
            let valid = is_valid(&secret, &cookie, ip(address), then);
            prop_assert_eq!(valid, (-300..=3_600).contains(&later));
            prop_assert!(!is_valid(&secret, &cookie, ip(!address), now));
            let mut other = secret;
            other[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!is_valid(&other, &cookie, ip(address), now));
            let mut bytes = made.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let changed = Cookie { client, server: ServerCookie::new(&bytes) };
            prop_assert!(!is_valid(&secret, &changed, ip(address), now));
            let mut of_another = cookie;
            of_another.client[bit / 16] ^= 1;
            prop_assert!(!is_valid(&secret, &of_another, ip(address), now));
            let half = Cookie { client, server: None };
            prop_assert!(!is_valid(&secret, &half, ip(address), now));
        }

        #[test]
        fn a_client_shows_each_server_and_network_another_cookie(
            secret: [u8; 16], local: u32, server: u32, port: u16,
        ) {
            let of = |local: u32, server: u32, port| {
                let at = SocketAddr::new(IpAddr::V4(server.into()), port);
                client_cookie(&secret, IpAddr::V4(local.into()), at)
            };
            let cookie = of(local, server, port);
            prop_assert_eq!(cookie, of(local, server, port));
            prop_assert_ne!(cookie, of(!local, server, port));
            prop_assert_ne!(cookie, of(local, !server, port));
            prop_assert_ne!(cookie, of(local, server, !port));
        }
    }
}
