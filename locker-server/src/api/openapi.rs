//! The OpenAPI document, generated from the table of actions.

mod parameters;

use super::{
    actions::{Action, ROWS, Row},
    answer::{JSON, TEXT},
    explained::{Explained, ExplainedHolder},
    resource::Resource,
    state::{Function, Holder, KeyInUse, State},
    stats::StatsBody,
};
use std::sync::LazyLock;
use utoipa::{
    PartialSchema,
    openapi::{
        Components, ComponentsBuilder, ContentBuilder, Header, HeaderBuilder, HttpMethod, InfoBuilder,
        ObjectBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Response,
        ResponseBuilder, ResponsesBuilder, Type,
        path::{Operation, OperationBuilder, Parameter, PathItemBuilder},
        schema::{ArrayBuilder, Schema},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

const ABOUT: &str = "Locks, rate limits and coordination. Times are milliseconds. \
    The paths of kinds (`/v1/<kind>/<name>` and `/v1/<kind>/<name>/<action>`) also exist without `/v1`.";

/// The name, type, statuses and description of each header.
const HEADERS: [(&str, Type, &[&str], &str); 3] = [
    ("Retry-After", Type::Integer, &["408", "429", "503"], "seconds until a retry may succeed, if known"),
    ("Allow", Type::String, &["405"], "the methods that the path accepts"),
    ("WWW-Authenticate", Type::String, &["401"], "Bearer"),
];

/// The answers that every call may get.
const EVERYWHERE: [(&str, &str); 6] = [
    ("400", "the request is malformed; the body has the reason"),
    ("401", "the token is missing or wrong"),
    ("403", "a web page sent the request, or the Host is unknown"),
    ("405", "the path does not accept the method: see Allow"),
    ("431", "the request line with its headers is too large"),
    ("503", "the store is unavailable, too many calls wait, or the server is shutting down"),
];

const TOO_MANY: (&str, &str) =
    ("429", "too many calls wait for this name, it has too many holds, or too many names are in use");

const NO_KEY: (&str, &str) = ("404", "the text is not a key below the prefix of the server");

/// The answers to wrong bodies of a POST.
const WRONG_BODY: [(&str, &str); 2] = [("413", "the body is too large"), ("415", "the body is not a form")];

const FORM: &str = "application/x-www-form-urlencoded";

/// The document as JSON, or the reason why there is none.
static DOCUMENT: LazyLock<Result<String, serde_json::Error>> = LazyLock::new(|| build().to_pretty_json());

/// Returns the document as JSON.
pub(crate) fn document() -> Result<&'static str, &'static serde_json::Error> {
    DOCUMENT.as_deref()
}

fn build() -> OpenApi {
    let mut paths = PathsBuilder::new();
    for row in &ROWS {
        let path = format!("/v1/{}/{{name}}/{}", row.resource.segment(), row.segment);
        paths = paths.path(path, action(row));
    }
    for resource in Resource::ALL {
        paths = paths.path(format!("/v1/{}/{{name}}", resource.segment()), thing(resource));
        paths = paths.path(format!("/v1/{}/{{name}}/stats", resource.segment()), stats(resource));
    }
    for (path, summary, body) in [
        ("/v1", "the keys in use", Body::Keys),
        (
            "/v1/explain",
            "who holds a key, how many calls wait, and what the holders wait for",
            Body::Json(explained),
        ),
        ("/healthz", "whether the server runs", Body::Text),
        ("/readyz", "whether the store answers (otherwise 503)", Body::Text),
        ("/.well-known/ready", "as /readyz, for clients of bouncer", Body::Text),
        ("/metrics", "counters for Prometheus", Body::Text),
        ("/openapi.json", "this document", Body::Json(|| ObjectBuilder::new().into())),
    ] {
        let (parameters, answers) = match path {
            "/v1" => (parameters::of_list().collect(), &[("200", summary)][..]),
            "/v1/explain" => (parameters::of_question().collect(), &[("200", summary), NO_KEY][..]),
            _ => (Vec::new(), &[("200", summary)][..]),
        };
        let mut get = operation(path, summary, parameters, answers, &body);
        if let "/healthz" | "/readyz" | "/.well-known/ready" | "/openapi.json" = path {
            get.security = Some(vec![SecurityRequirement::default()]);
            get.responses.responses.remove("401");
        }
        paths = paths.path(path, PathItem::new(HttpMethod::Get, get));
    }
    let info = InfoBuilder::new().title("locker").description(Some(ABOUT)).version(env!("CARGO_PKG_VERSION"));
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let needs_token = SecurityRequirement::new("token", [""; 0]);
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths.build())
        .components(Some(components(bearer)))
        // A server without a token file needs no token.
        .security(Some([SecurityRequirement::default(), needs_token]))
        .build()
}

fn components(bearer: SecurityScheme) -> Components {
    ComponentsBuilder::new()
        .security_scheme("token", bearer)
        .schema("Key", KeyInUse::schema())
        .schema("Function", Function::schema())
        .schema("Explanation", Explained::schema())
        .schema("ExplainedHolder", ExplainedHolder::schema())
        .schema("Holder", Holder::schema())
        .schema("State", State::schema())
        .schema("Stats", StatsBody::schema())
        .build()
}

fn explained() -> RefOr<Schema> {
    Ref::from_schema_name("Explanation").into()
}

fn keys() -> RefOr<Schema> {
    ArrayBuilder::new().items(Ref::from_schema_name("Key")).into()
}

fn action(row: &Row) -> PathItem {
    let id = format!("{}-{}", row.resource.segment(), row.segment);
    let body = match row.action {
        Action::BeginRun => Body::Run,
        action if action.takes_hold() => Body::Key,
        _ => Body::Text,
    };
    let mut answers = row.answers.to_vec();
    if row.action.uses_name() {
        answers.push(TOO_MANY);
    }
    let parameters = std::iter::once(parameters::name(row.resource)).chain(parameters::query(row));
    let get = operation(&format!("{id}-get"), row.summary, parameters, &answers, &body);
    answers.extend(WRONG_BODY);
    let mut post = operation(&id, row.summary, [parameters::name(row.resource)], &answers, &body);
    post.request_body = Some(parameters::form(row).into());
    PathItemBuilder::new().operation(HttpMethod::Post, post).operation(HttpMethod::Get, get).build()
}

fn thing(resource: Resource) -> PathItem {
    let (kind, name) = (resource.segment(), || [parameters::name(resource)]);
    let show = [("200", "the state"), ("404", "the name is not in use")];
    let state = Body::Json(|| Ref::from_schema_name("State").into());
    let mut delete = vec![
        ("204", "forgotten; waiting calls get 409"),
        ("404", "not in use, and this server does not know it"),
    ];
    let mut of_deletion = vec![parameters::name(resource)];
    if resource.is_held() {
        delete[0].1 =
            "forgotten, and waiting calls get 409; with `fence`: holds have ended, and waiting calls go on";
        delete.push(("409", "nothing is held with this fence or a lower one"));
        of_deletion.push(parameters::fence());
    }
    PathItemBuilder::new()
        .operation(HttpMethod::Get, operation(&format!("{kind}-state"), "the state", name(), &show, &state))
        .operation(
            HttpMethod::Delete,
            operation(&format!("{kind}-delete"), "forgets the name", of_deletion, &delete, &Body::Text),
        )
        .build()
}

fn stats(resource: Resource) -> PathItem {
    let (id, unknown) =
        (format!("{}-stats", resource.segment()), ("404", "this server does not know the name"));
    let counted = [("200", "what this server has counted"), unknown];
    let body = Body::Json(|| Ref::from_schema_name("Stats").into());
    let name = [parameters::name(resource)];
    PathItem::new(HttpMethod::Get, operation(&id, "counts of this server", name, &counted, &body))
}

fn operation(
    id: &str,
    summary: &str,
    parameters: impl IntoIterator<Item = Parameter>,
    answers: &[(&str, &str)],
    body: &Body,
) -> Operation {
    let mut responses = ResponsesBuilder::new();
    for (status, text) in EVERYWHERE.iter().chain(answers) {
        let body = if *status == "200" { body } else { &Body::Text };
        responses = responses.response(*status, response(status, text, body));
    }
    OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .parameters(Some(parameters))
        .responses(responses.build())
        .build()
}

/// The body of a 200.
enum Body {
    Text,
    /// The key of a hold. Its fence is in a header.
    Key,
    /// The key of a run, or the result of another one.
    Run,
    /// A page of a list. The path of the next one is in a header.
    Keys,
    Json(fn() -> RefOr<Schema>),
}

fn response(status: &str, text: &str, body: &Body) -> Response {
    let mut response = ResponseBuilder::new().description(text);
    if let ("200", Body::Run) = (status, body) {
        response = response
            .header("Locker-Replayed", header(Type::Boolean, "true: the body is the result of another run"))
            .header("Locker-Slot", header(Type::String, "when the slot of the run begins (RFC 3339)"))
            .header("Locker-Missed", header(Type::Integer, "how many slots before saw no success"))
            .content(JSON, ContentBuilder::new().build());
    }
    if let Body::Key | Body::Run = body {
        response = response.header("Locker-Fence", header(Type::Integer, "rises with every grant"));
    }
    if let ("200", Body::Keys) = (status, body) {
        response =
            response.header("Link", header(Type::String, "the path of the next page, if there is one"));
    }
    for (name, kind, _, text) in HEADERS.into_iter().filter(|(_, _, statuses, _)| statuses.contains(&status))
    {
        response = response.header(name, header(kind, text));
    }
    if let "204" | "431" = status {
        return response.build();
    }
    let (kind, schema) = match body {
        Body::Json(schema) => (JSON, schema()),
        Body::Keys => (JSON, keys()),
        _ => (TEXT, string()),
    };
    response.content(kind, ContentBuilder::new().schema(Some(schema)).build()).build()
}

fn header(kind: Type, text: &str) -> Header {
    HeaderBuilder::new().schema(Some(ObjectBuilder::new().schema_type(kind))).description(Some(text)).build()
}

fn string() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn parsed() -> Value {
        serde_json::from_str(document().unwrap()).unwrap()
    }

    /// Returns the schemas of a parameter in the query of a GET and in the form of a POST.
    fn schemas<'a>(operations: &'a Value, name: &str) -> [&'a Value; 2] {
        let query = operations["get"]["parameters"].as_array().unwrap();
        let query = query.iter().find(|one| one["name"] == name).unwrap();
        let form = &operations["post"]["requestBody"]["content"][FORM]["schema"];
        let is_needed = form["required"].as_array().is_some_and(|needed| needed.contains(&name.into()));
        assert_eq!(query["required"], is_needed, "{name}: {operations}");
        [&query["schema"], &form["properties"][name]]
    }

    #[test]
    fn has_every_path_of_the_table() {
        let document = parsed();
        for row in &ROWS {
            let path = format!("/v1/{}/{{name}}/{}", row.resource.segment(), row.segment);
            let operations = &document["paths"][&path];
            for (status, _) in row.answers {
                assert!(operations["post"]["responses"][*status].is_object(), "{path} {status}");
            }
            for parameter in row.parameters.iter().chain(&["id"]) {
                let [query, form] = schemas(operations, parameter);
                assert!(query.is_object() && query == form, "{path} {parameter}");
            }
            let is_of_form = |status: &&str| row.answers.iter().all(|(own, _)| own != status);
            for status in ["413", "415"].into_iter().filter(is_of_form) {
                assert!(operations["get"]["responses"][status].is_null(), "{path} {status}");
            }
        }
        assert!(document["paths"]["/v1/event/{name}"]["delete"].is_object());
        assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    }

    #[test]
    fn says_what_is_refused() {
        let document = parsed();
        let schema = |path: &str, name: &str| schemas(&document["paths"][path], name)[0].clone();
        for (path, name, rule, expected) in [
            ("/v1/watchdog/{name}/kick", "expires", "minimum", 1.into()),
            ("/v1/semaphore/{name}/acquire", "expires", "minimum", 0.into()),
            ("/v1/semaphore/{name}/acquire", "key", "minLength", 1.into()),
            ("/v1/lock/by-key/{name}/acquire", "expires", "minimum", 1.into()),
            ("/v1/counter/{name}/count", "amount", "maximum", 9_007_199_254_740_991_i64.into()),
            ("/v1/barrier/{name}/wait", "size", "minimum", 1.into()),
            ("/v1/barrier/{name}/wait", "maxwait", "minimum", i64::MIN.into()),
            ("/v1/tokenbucket/{name}/acquire", "interval", "minimum", 1.into()),
            ("/v1/tokenbucket/{name}/acquire", "interval", "maximum", i64::MAX.into()),
            ("/v1/event/{name}/send", "id", "minLength", 1.into()),
            ("/v1/event/{name}/send", "message", "minLength", Value::Null),
            ("/v1/rwlock/{name}/acquire", "mode", "enum", ["read", "write"].into()),
        ] {
            assert_eq!(schema(path, name)[rule], expected, "{path} {name}");
        }
        let form = |path: &str| &document["paths"][path]["post"]["requestBody"]["content"][FORM]["schema"];
        assert_eq!(form("/v1/rwlock/{name}/acquire")["required"], Value::from(["mode"]));
        assert_eq!(form("/v1/rwlock/{name}/renew")["required"], Value::from(["key"]));
        assert_eq!(form("/v1/event/{name}/send")["additionalProperties"], false);
    }

    #[test]
    fn is_made_once() {
        assert!(std::ptr::eq(document().unwrap(), document().unwrap()));
    }
}
