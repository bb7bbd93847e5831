//! The attributes of locker.
