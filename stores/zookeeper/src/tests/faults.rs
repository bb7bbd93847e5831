//! Servers that are killed, stopped or cut off.

use super::*;
use locker_harness::ZookeeperCluster;
use std::time::Instant;
