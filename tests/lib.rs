//! The programs of the pages under `docs/`, compiled and run as documentation tests.

/// The examples of the guide are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/attributes.md")]
pub struct GuideToTheAttributes;

/// The examples of the page on the primitives are compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/primitives.md")]
pub struct GuideToThePrimitives;

/// The example of the page on Redis is compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/redis.md")]
pub struct GuideToRedis;
