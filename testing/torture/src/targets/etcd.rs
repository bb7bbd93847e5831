//! What differs on etcd.

use super::ensemble::Differences;
use locker_harness::{Etcd, EtcdCluster, eventually};

impl Differences for Etcd {
    fn has_inboxes(cluster: &EtcdCluster) -> Option<bool> {
        Some(keys(cluster)?.iter().any(|(key, _)| key.contains("/inbox/")))
    }

    fn eternal_keys(cluster: &EtcdCluster) -> Vec<String> {
        let keys = eventually("the keys of the cluster", || keys(cluster));
        // The base of the fences and the clock stay.
        let stays = |key: &str| key.ends_with("/base") || key.ends_with("/clock");
        let eternal = keys.into_iter().filter(|(key, has_lease)| !has_lease && !stays(key));
        eternal.map(|(key, _)| key).collect()
    }
}

/// Returns all keys, each with whether it is under a lease.
fn keys(cluster: &EtcdCluster) -> Option<Vec<(String, bool)>> {
    // From the first key to the last one, without values.
    let all = r#"{"key":"AA==","range_end":"AA==","keys_only":true}"#;
    let answer = cluster.ask(cluster.leader(), "kv/range", all)?;
    let keys = answer.split("{\"key\":\"").skip(1).map(|part| {
        let (key, rest) = part.split_once('"').unwrap_or((part, ""));
        let rest = rest.split('}').next().unwrap_or(rest);
        (decoded(key), rest.contains("\"lease\":"))
    });
    Some(keys.collect())
}

/// Returns the text that is written in base 64.
fn decoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        (bits, count) = ((bits << 6 | u32::try_from(digit).unwrap_or(0)) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or(0));
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
