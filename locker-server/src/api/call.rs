//! Parsing of requests into calls.

use super::{
    actions::Action,
    answer::Answer,
    explain::Question,
    listing::Listing,
    name,
    params::{Params, RawParams},
    resource::Resource,
};
use std::time::Duration;

/// The methods that have a meaning. Every other method is answered 405.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Every call accepts it, as in bouncer.
    Get,
    /// Preferred for calls that change something.
    Post,
    /// Deletes a name.
    Delete,
    /// Any other method.
    Other,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Runs an action.
    Action { action: Action, name: String, params: Params },
    /// Deletes a name. Its waiters get 409.
    Delete(Resource, String),
    /// Ends the holds with this fence or a lower one. Waiters go on.
    Evict(Resource, String, u64),
    /// Shows the state of a name.
    Show(Resource, String),
    /// Shows what this server has counted at a name.
    Stats(Resource, String),
    /// Lists the keys in use.
    List(Box<Listing>),
    /// Says who holds a key.
    Explain(Box<Question>),
}

/// The kind of a call, without name and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Action(Action),
    Delete,
    Show,
    Stats,
    List,
    Explain,
}

impl CallKind {
    /// Returns the kind by method and path, also for requests that cannot be parsed. Returns `None` if the path is
    /// unknown.
    pub(crate) fn of(method: Method, path: &str) -> Option<Self> {
        Some(match (Target::parse(path).ok()?, method) {
            (Target::List, _) => Self::List,
            (Target::Explain, _) => Self::Explain,
            (Target::Name(..), Method::Delete) => Self::Delete,
            (Target::Name(..), _) => Self::Show,
            (Target::Stats(..), _) => Self::Stats,
            (Target::Action(action, _), _) => Self::Action(action),
        })
    }
}

impl CallKind {
    /// Returns `true` if such a call may change something.
    pub(crate) fn changes(self) -> bool {
        match self {
            Self::Action(action) => action != Action::ReadCounter,
            Self::Delete => true,
            Self::Show | Self::Stats | Self::List | Self::Explain => false,
        }
    }
}

impl Call {
    pub(crate) fn kind(&self) -> CallKind {
        match self {
            Self::Action { action, .. } => CallKind::Action(*action),
            Self::Delete(..) | Self::Evict(..) => CallKind::Delete,
            Self::Show(..) => CallKind::Show,
            Self::Stats(..) => CallKind::Stats,
            Self::List(_) => CallKind::List,
            Self::Explain(_) => CallKind::Explain,
        }
    }

    /// Returns the whole key of a lock that is called by its key.
    pub(crate) fn key(&self) -> Option<&str> {
        let (resource, name) = match self {
            Self::Action { action, name, .. } => (action.row().resource, name),
            Self::Delete(resource, name)
            | Self::Evict(resource, name, _)
            | Self::Show(resource, name)
            | Self::Stats(resource, name) => (*resource, name),
            Self::List(_) | Self::Explain(_) => return None,
        };
        (resource == Resource::LockByKey).then_some(&**name)
    }

    /// Returns the queue in which the call waits, if it has to.
    pub(crate) fn queue(&self) -> (Option<Resource>, &str) {
        match self {
            Self::Action { action, name, .. } => (Some(action.row().resource), name),
            _ => (None, ""),
        }
    }

    /// Returns `true` if the call may wait for another caller or for a refill. Every other call ends with the reply of
    /// the store.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(self, Self::Action { action, params, .. } if action.waits() && !params.maxwait.is_zero())
    }

    /// Returns the same call with `maxwait=0`.
    pub(crate) fn without_waiting(&self) -> Self {
        let mut call = self.clone();
        if let Self::Action { params, .. } = &mut call {
            params.maxwait = Duration::ZERO;
        }
        call
    }
}

/// A parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedCall {
    pub(crate) call: Call,
    /// The client's id of the request, for the log.
    pub(crate) id: Option<Box<str>>,
}

/// Returns `true` if the path is below `/v1`, or as the older version of bouncer has it.
pub(crate) fn is_call(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/") || Target::parse(path).is_ok()
}

/// Parses a request.
///
/// # Errors
/// The answer to a wrong request: 404 for an unknown path, 405 for a method that the path does not accept, 400 for bad
/// names and parameters.
pub(crate) fn parse(method: Method, path: &str, query: &str, form: &str) -> Result<ParsedCall, Answer> {
    let target = Target::parse(path)?;
    target.check(method)?;
    if let Target::List = target {
        let mut listing = Listing::parse(query, form)?;
        let id = listing.id.take();
        return Ok(ParsedCall { call: Call::List(Box::new(listing)), id });
    }
    if let Target::Explain = target {
        let mut question = Question::parse(query, form)?;
        let id = question.id.take();
        return Ok(ParsedCall { call: Call::Explain(Box::new(question)), id });
    }
    let (raw, fence) = match method {
        Method::Delete => RawParams::parse_deletion(query, form)?,
        _ => (RawParams::parse(query, form)?, None),
    };
    let id = raw.id.clone();
    let call = match target {
        Target::List => Call::List(Box::default()),
        Target::Explain => Call::Explain(Box::default()),
        Target::Name(resource, name) => {
            let name = parse_name(resource, name)?;
            match (method, fence) {
                (Method::Delete, Some(fence)) if resource.is_held() => Call::Evict(resource, name, fence),
                (Method::Delete, Some(_)) => {
                    let reason = "fence is for what is held: lock, semaphore, rwlock, leader and once";
                    return Err(Answer::bad_request(reason));
                }
                (Method::Delete, None) => Call::Delete(resource, name),
                _ => Call::Show(resource, name),
            }
        }
        Target::Stats(resource, name) => Call::Stats(resource, parse_name(resource, name)?),
        Target::Action(action, name) => {
            let name = parse_name(action.row().resource, name)?;
            Call::Action { action, name, params: Params::new(action, raw)? }
        }
    };
    Ok(ParsedCall { call, id })
}

fn parse_name(resource: Resource, segment: &str) -> Result<String, Answer> {
    let name = match resource {
        Resource::LockByKey => name::parse_key(segment),
        // With `-` percent-encoded. A proxy may decode it.
        Resource::Lock => name::parse(segment).and_then(|name| match &*name {
            "by-key" => Err("a lock cannot be called by-key".into()),
            _ => Ok(name),
        }),
        _ => name::parse(segment),
    };
    name.map_err(Answer::bad_request)
}

/// The target of a path. Names are still encoded.
#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    List,
    Explain,
    Name(Resource, &'a str),
    Stats(Resource, &'a str),
    Action(Action, &'a str),
}

impl<'a> Target<'a> {
    /// Accepts paths with and without `/v1`, as the two versions of bouncer have them. The list and what explains a key
    /// are not bouncer's: their paths begin with `/v1`.
    fn parse(path: &'a str) -> Result<Self, Answer> {
        if path == "/v1" {
            return Ok(Self::List);
        }
        if path == "/v1/explain" {
            return Ok(Self::Explain);
        }
        let unknown = || Answer::no_such_path(path);
        let rest = path.strip_prefix("/v1/").or_else(|| path.strip_prefix('/')).ok_or_else(unknown)?;
        let (resource, rest) = Resource::split(rest).ok_or_else(unknown)?;
        match rest.split_once('/') {
            None => Ok(Self::Name(resource, rest)),
            Some((name, "stats")) => Ok(Self::Stats(resource, name)),
            Some((name, action)) => {
                let action = Action::parse(resource, action).ok_or_else(unknown)?;
                Ok(Self::Action(action, name))
            }
        }
    }

    fn check(self, method: Method) -> Result<(), Answer> {
        let (allowed, allow): (&[Method], _) = match self {
            Self::List | Self::Explain | Self::Stats(..) => (&[Method::Get], "GET"),
            Self::Name(..) => (&[Method::Get, Method::Delete], "GET, DELETE"),
            Self::Action(..) => (&[Method::Get, Method::Post], "GET, POST"),
        };
        if allowed.contains(&method) { Ok(()) } else { Err(Answer::wrong_method(allow)) }
    }
}

#[cfg(test)]
mod tests;
