//! The parameters in the OpenAPI document. What it allows is accepted, but where parameters need each other. It allows
//! less than the server where a schema cannot say what is printable, or how many bytes a text has.

use super::{FORM, string};
use crate::api::{
    actions::{Action, Row},
    listing::MOST,
    name::MAX_LENGTH,
    resource::Resource,
};
use locker_runtime::{Named, primitives::counter::MAX_VALUE};
use utoipa::openapi::{
    ContentBuilder, KnownFormat, ObjectBuilder, RefOr, Required, SchemaFormat, Type,
    path::{Parameter, ParameterBuilder, ParameterIn},
    request_body::{RequestBody, RequestBodyBuilder},
    schema::{AdditionalProperties, AnyOfBuilder, Schema},
};

/// Printable ASCII without `/`.
const ASCII: &str = "^[ -.0-~]+$";

/// The same and letters of up to three bytes: Latin, Cyrillic, Japanese, Chinese and Korean ones.
const LETTERS: &str = "^[ -.0-~¡-¬®-˿Ѐ-ҁぁ-ゖァ-ヺ一-龥가-힣]+$";

/// The key of an attribute's lock below a simple prefix.
const KEY_OF_ATTRIBUTE: &str = r"^[0-9A-Za-z._~-]{0,130}[0-9a-f]{32}:lock\|[0-9a-f]{32}$";

/// The parameters that every action has.
const COMMON: [&str; 1] = ["id"];

/// Describes the name in a path.
pub(super) fn name(resource: Resource) -> Parameter {
    let text = match resource {
        Resource::LockByKey => {
            "the whole key of the lock of an attribute, percent-encoded, at most 200 bytes"
        }
        Resource::Lock => "1 to 200 bytes of printable UTF-8 without `/`, percent-encoded; not `by-key`",
        _ => "1 to 200 bytes of printable UTF-8 without `/`, percent-encoded",
    };
    let schema: RefOr<Schema> = if resource == Resource::LockByKey {
        ObjectBuilder::new().schema_type(Type::String).pattern(Some(KEY_OF_ATTRIBUTE)).into()
    } else {
        let like = |pattern, most| {
            let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern));
            text.min_length(Some(1)).max_length(Some(most))
        };
        AnyOfBuilder::new().item(like(ASCII, MAX_LENGTH)).item(like(LETTERS, MAX_LENGTH / 3)).into()
    };
    let name = ParameterBuilder::new().name("name").parameter_in(ParameterIn::Path).required(Required::True);
    name.description(Some(text)).schema(Some(schema)).build()
}

/// Describes the parameters of an action in a query.
pub(super) fn query(row: &Row) -> impl Iterator<Item = Parameter> {
    let Row { action, parameters, .. } = *row;
    parameters.iter().chain(&COMMON).map(move |name| {
        let needed = if is_needed(name, action) { Required::True } else { Required::False };
        in_query(name, text(name), schema(name, action), needed)
    })
}

/// Describes the parameters of an action as a form.
pub(super) fn form(row: &Row) -> RequestBody {
    let Row { action, parameters, .. } = *row;
    let none = AdditionalProperties::<Schema>::FreeForm(false);
    let mut object = ObjectBuilder::new().additional_properties(Some(none));
    let mut needed = Required::False;
    for name in parameters.iter().chain(&COMMON) {
        object = object.property(*name, schema(name, action));
        if is_needed(name, action) {
            object = object.required(*name);
            needed = Required::True;
        }
    }
    RequestBodyBuilder::new()
        .description(Some("the parameters; each may be in the query instead, but not in both"))
        .required(Some(needed))
        .content(FORM, ContentBuilder::new().schema(Some(object.build())).build())
        .build()
}

/// Describes the parameters of a list.
pub(super) fn of_list() -> impl Iterator<Item = Parameter> {
    let limit = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MOST));
    let parameters = [
        ("prefix", "only names that begin with this text", not_empty()),
        ("kind", "only keys of this kind", one_of(Named::KINDS.iter().chain(&["tokenbucket"]))),
        ("after", "only keys after this one, in the order of their bytes", not_empty()),
        ("limit", "at most this many keys; the header Link has the next page", limit().into()),
        ("id", text("id"), not_empty()),
    ];
    parameters.into_iter().map(|(name, text, schema)| in_query(name, text, schema, Required::False))
}

/// Describes the parameters of the call that explains a key.
pub(super) fn of_question() -> impl Iterator<Item = Parameter> {
    let key = in_query("key", "the whole key, as GET /v1 lists it", not_empty(), Required::True);
    [key, in_query("id", text("id"), not_empty(), Required::False)].into_iter()
}

/// Describes up to which hold a deletion goes.
pub(super) fn fence() -> Parameter {
    let schema = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build();
    let text = "ends only the holds with this fence or a lower one, as the state shows them";
    in_query("fence", text, schema.into(), Required::False)
}

fn in_query(name: &str, text: &str, schema: RefOr<Schema>, needed: Required) -> Parameter {
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).required(needed);
    parameter.description(Some(text)).schema(Some(schema)).build()
}

fn is_needed(name: &str, action: Action) -> bool {
    name == "key" && action.needs_key() || name == "mode" && action == Action::AcquireSide
}

fn text(name: &str) -> &'static str {
    match name {
        "amount" => "what to add, negative to subtract; up to 2^53-1",
        "size" => "tokens, slots, callers of a round or count-downs; clamped to 2^53-1",
        "interval" => "milliseconds between two refills, at least 1; clamped to 10 years",
        "expires" => {
            "milliseconds; 0 means never (semaphores only); beyond 10 years: never for a semaphore, 10 years otherwise"
        }
        "maxwait" => {
            "milliseconds to wait; a negative value or more than 10 years means indefinitely, 0 does not wait"
        }
        "key" => "the name of the hold; a random UUID if it is left out. Of a run: what begin has answered",
        "every" => "milliseconds of a slot, 1 s to 366 d: one run succeeds in each. Either this or keep",
        "from" => "when slots begin, in milliseconds after midnight UTC",
        "early" => {
            "how many milliseconds before its slot a call counts for it; 30 s, or a tenth of a slot if that is less"
        }
        "keep" => {
            "for how many milliseconds a success counts; 0: for the calls that wait. Either this or every"
        }
        "same" => "what all calls of the name must have in common",
        "after_crash" => "after a run without a report: repeat (default), or refuse",
        "result" => "JSON text of at most 6 KiB, which other callers get",
        "message" => "the message for the waiters",
        "mode" => "read or write",
        "value" => "the new value; up to 2^53-1",
        _ => "written to the log",
    }
}

fn default(name: &str, action: Action) -> Option<i64> {
    match name {
        "amount" => Some(1),
        "size" => i64::try_from(action.default_size()).ok(),
        "interval" => Some(1000),
        "expires" => Some(60_000),
        "maxwait" => Some(-1),
        "value" => Some(0),
        _ => None,
    }
}

fn schema(name: &str, action: Action) -> RefOr<Schema> {
    let most = if let "amount" | "value" = name { MAX_VALUE } else { i64::MAX };
    match (name, default(name, action)) {
        ("mode", _) => one_of(["read", "write"]),
        ("after_crash", _) => one_of(["repeat", "refuse"]),
        ("every" | "from" | "early" | "keep", _) => {
            const LONGEST: i64 = 366 * 24 * 60 * 60 * 1000;
            let (least, most) = match name {
                "every" => (1000, LONGEST),
                "early" => (0, LONGEST / 2),
                _ => (0, i64::MAX),
            };
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(least)).maximum(Some(most)).into()
        }
        ("message", _) => string(),
        (_, None) => not_empty(),
        (_, Some(default)) => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(action.min(name).unwrap_or(i64::MIN)))
            .maximum(Some(most))
            .default(Some(default.into()))
            .into(),
    }
}

fn not_empty() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).into()
}

fn one_of<'a>(values: impl IntoIterator<Item = impl AsRef<str> + 'a>) -> RefOr<Schema> {
    let values = values.into_iter().map(|value| value.as_ref().to_owned());
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values)).into()
}
