//! The OpenAPI document, generated from the table of actions.

use super::{
    actions::{Action, ROWS, Row},
    answer::{JSON, TEXT},
    resource::Resource,
    state::{Function, Holder, KeyInUse, State},
    stats::StatsBody,
};
use locker_runtime::primitives::counter::MAX_VALUE;
use utoipa::{
    PartialSchema,
    openapi::{
        Components, ComponentsBuilder, ContentBuilder, Header, HeaderBuilder, HttpMethod, InfoBuilder,
        KnownFormat, ObjectBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Required,
        Response, ResponseBuilder, ResponsesBuilder, SchemaFormat, Type,
        path::{Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItemBuilder},
        request_body::{RequestBody, RequestBodyBuilder},
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

const EVERYWHERE: [(&str, &str); 9] = [
    ("400", "the request is malformed; the body has the reason"),
    ("401", "the token is missing or wrong"),
    ("403", "a web page sent the request, or the Host is unknown"),
    ("405", "the path does not accept the method: see Allow"),
    ("413", "the body is too large"),
    ("415", "the body is not a form"),
    ("431", "the request line with its headers is too large"),
    ("429", "too many calls wait for this name, it has too many holds, or too many names are in use"),
    ("503", "the store is unavailable, too many calls wait, or the server is shutting down"),
];

/// Returns the document as JSON.
pub(crate) fn document() -> Result<String, serde_json::Error> {
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
        ("/healthz", "whether the server runs", Body::Text),
        ("/readyz", "whether the store answers (otherwise 503)", Body::Text),
        ("/.well-known/ready", "as /readyz, for clients of bouncer", Body::Text),
        ("/metrics", "counters for Prometheus", Body::Text),
        ("/openapi.json", "this document", Body::Json(|| ObjectBuilder::new().into())),
    ] {
        let parameters = if path == "/v1" { of_list() } else { Vec::new() };
        let mut get = operation(path, summary, parameters, &[("200", summary)], &body);
        if let "/healthz" | "/readyz" | "/.well-known/ready" | "/openapi.json" = path {
            get.security = Some(vec![SecurityRequirement::default()]);
            get.responses.responses.remove("401");
        }
        paths = paths.path(path, PathItem::new(HttpMethod::Get, get));
    }
    let info = InfoBuilder::new().title("locker").description(Some(ABOUT)).version(env!("CARGO_PKG_VERSION"));
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let needs_token = SecurityRequirement::new("token", [""; 0]);
    let document: OpenApi = OpenApiBuilder::new()
        .info(info.build())
        .paths(paths.build())
        .components(Some(components(bearer)))
        // A server without a token file needs no token.
        .security(Some([SecurityRequirement::default(), needs_token]))
        .build();
    document.to_pretty_json()
}

fn components(bearer: SecurityScheme) -> Components {
    ComponentsBuilder::new()
        .security_scheme("token", bearer)
        .schema("Key", KeyInUse::schema())
        .schema("Function", Function::schema())
        .schema("Holder", Holder::schema())
        .schema("State", State::schema())
        .schema("Stats", StatsBody::schema())
        .build()
}

fn keys() -> RefOr<Schema> {
    ArrayBuilder::new().items(Ref::from_schema_name("Key")).into()
}

fn action(row: &Row) -> PathItem {
    let parameters = || {
        let needed = |name: &str| name == "key" && row.action.needs_key() || name == "mode";
        std::iter::once(name())
            .chain(
                row.parameters.iter().map(move |parameter| query(parameter, needed(parameter), row.action)),
            )
            .chain([query("id", false, row.action)])
    };
    let id = format!("{}-{}", row.resource.segment(), row.segment);
    let body = if row.action.takes_hold() { Body::Key } else { Body::Text };
    let mut post = operation(&id, row.summary, parameters(), row.answers, &body);
    post.request_body = Some(form(row).into());
    PathItemBuilder::new()
        .operation(HttpMethod::Post, post)
        .operation(
            HttpMethod::Get,
            operation(&format!("{id}-get"), row.summary, parameters(), row.answers, &body),
        )
        .build()
}

/// Describes the parameters as a form.
fn form(row: &Row) -> RequestBody {
    let fields = row.parameters.iter().chain(&["id"]);
    let object =
        fields.fold(ObjectBuilder::new(), |object, name| object.property(*name, schema(name, row.action)));
    RequestBodyBuilder::new()
        .description(Some("the parameters may be sent as a form instead"))
        .content(
            "application/x-www-form-urlencoded",
            ContentBuilder::new().schema(Some(object.build())).build(),
        )
        .build()
}

fn thing(resource: Resource) -> PathItem {
    let (resource, unknown) = (resource.segment(), ("404", "the name is not in use"));
    let (show, state) =
        ([("200", "the state"), unknown], Body::Json(|| Ref::from_schema_name("State").into()));
    let delete = [("204", "forgotten; waiting calls get 409"), unknown];
    PathItemBuilder::new()
        .operation(
            HttpMethod::Get,
            operation(&format!("{resource}-state"), "the state", [name()], &show, &state),
        )
        .operation(
            HttpMethod::Delete,
            operation(&format!("{resource}-delete"), "forgets the name", [name()], &delete, &Body::Text),
        )
        .build()
}

fn stats(resource: Resource) -> PathItem {
    let (id, unknown) =
        (format!("{}-stats", resource.segment()), ("404", "this server does not know the name"));
    let counted = [("200", "what this server has counted"), unknown];
    let body = Body::Json(|| Ref::from_schema_name("Stats").into());
    PathItem::new(HttpMethod::Get, operation(&id, "counts of this server", [name()], &counted, &body))
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
    /// A page of a list. The path of the next one is in a header.
    Keys,
    Json(fn() -> RefOr<Schema>),
}

fn response(status: &str, text: &str, body: &Body) -> Response {
    let mut response = ResponseBuilder::new().description(text);
    if let Body::Key = body {
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

fn name() -> Parameter {
    ParameterBuilder::new()
        .name("name")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(
            "1 to 200 bytes, printable, percent-encoded; of lock/by-key the whole key of an attribute",
        ))
        .schema(Some(string()))
        .build()
}

/// Describes the parameters of a list.
fn of_list() -> Vec<Parameter> {
    let parameter = |(name, text)| {
        let schema = if name == "limit" {
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(1_000)).into()
        } else {
            string()
        };
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query);
        parameter.required(Required::False).description(Some(text)).schema(Some(schema)).build()
    };
    let parameters = [
        ("prefix", "only names that begin with this text"),
        ("kind", "only keys of this kind"),
        ("after", "only keys after this one, in the order of their bytes"),
        ("limit", "at most this many keys; the header Link has the next page"),
        ("id", "written to the log"),
    ];
    parameters.into_iter().map(parameter).collect()
}

fn query(name: &str, needed: bool, action: Action) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(if needed { Required::True } else { Required::False })
        .description(Some(text(name)))
        .schema(Some(schema(name, action)))
        .build()
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
        "key" => "the name of the hold; a random UUID if it is left out",
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
    match default(name, action) {
        None if name == "mode" => {
            ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["read", "write"])).into()
        }
        None => string(),
        Some(default) => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(action.min(name))
            .maximum(Some(most))
            .default(Some(default.into()))
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_every_path_of_the_table() {
        let document: serde_json::Value = serde_json::from_str(&document().unwrap()).unwrap();
        for row in &ROWS {
            let path = format!("/v1/{}/{{name}}/{}", row.resource.segment(), row.segment);
            let post = &document["paths"][&path]["post"];
            for (status, _) in row.answers {
                assert!(post["responses"][*status].is_object(), "{path} {status}: {post}");
            }
            let given: Vec<_> =
                post["parameters"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
            for parameter in row.parameters {
                assert!(given.contains(&(*parameter).into()), "{path} {parameter}");
            }
        }
        assert!(document["paths"]["/v1/event/{name}"]["delete"].is_object());
        let min = |path: &str, name: &str| {
            let given = document["paths"][path]["post"]["parameters"].as_array().unwrap();
            given.iter().find(|one| one["name"] == name).unwrap()["schema"]["minimum"].as_f64()
        };
        let kick = &document["paths"]["/v1/watchdog/{name}/kick"]["post"];
        let fields =
            &kick["requestBody"]["content"]["application/x-www-form-urlencoded"]["schema"]["properties"];
        assert_eq!(fields["expires"]["minimum"].as_f64(), Some(1.0));
        assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
        assert_eq!(min("/v1/watchdog/{name}/kick", "expires"), Some(1.0));
        assert_eq!(min("/v1/semaphore/{name}/acquire", "expires"), Some(0.0));
        assert_eq!(min("/v1/lock/by-key/{name}/acquire", "expires"), Some(1.0));
        assert_eq!(min("/v1/barrier/{name}/wait", "size"), Some(1.0));
        let amount = &document["paths"]["/v1/counter/{name}/count"]["post"]["parameters"][1];
        assert_eq!(amount["schema"]["maximum"].as_f64(), Some(9_007_199_254_740_991.0), "{amount}");
        assert_eq!(min("/v1/tokenbucket/{name}/acquire", "interval"), Some(1.0));
    }
}
