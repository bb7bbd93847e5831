//! Every mistake has an error message at its token.
