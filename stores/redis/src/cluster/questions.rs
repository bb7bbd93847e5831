//! Questions to the nodes of a cluster.

use crate::{connection::Connection, errors, handshake, server::Server, topology::View};
use futures_util::{StreamExt, stream::FuturesUnordered};
use locker_core::{
    background,
    clock::Timestamp,
    error::{Error, ErrorKind, Result},
    store::opening::NetworkOptions,
};
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisError, Value, from_redis_value};
use std::{sync::Arc, time::Duration};

/// How long a node may take to reply.
pub(super) const LIMIT: Duration = Duration::from_secs(1);

/// How long the other nodes may take after the first one: a dead one costs no more.
const GRACE: Duration = Duration::from_millis(100);

/// Asks a node over the connection to it.
pub(super) async fn ask_link(connection: Arc<Connection>) -> Result<View> {
    let Server { address, host, .. } = &*connection.server;
    let reply = connection.call(View::question(), Timestamp::now() + LIMIT).await?;
    let mut view = read(reply.map_err(|error| refused(&error, address))?, host)?;
    view.was_reached = true;
    Ok(view)
}

/// Asks a node over a connection of its own.
pub(super) async fn ask_place(info: &ConnectionInfo, options: &NetworkOptions) -> Result<View> {
    let server = Server::new(info.clone(), 0, options)?;
    let asking = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = server.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connected.map_err(|error| handshake::not_connected(&server, &error))?;
        let reply = connection.send_packed_command(&View::question()).await.and_then(Value::extract_error);
        read(reply.map_err(|error| refused(&error, &server.address))?, &server.host)
    };
    tokio::select! {
        biased;
        view = asking => view,
        () = background::sleep(LIMIT) => {
            Err(server.unreachable(&format!("nothing heard within {LIMIT:?}")))
        }
    }
}

/// Returns the replies. Once one view has come, the others have little time.
pub(super) async fn join_or_grace(
    asking: impl Iterator<Item = impl Future<Output = Result<View>>>,
) -> Vec<Result<View>> {
    let mut asking: FuturesUnordered<_> = asking.collect();
    let (mut views, mut until) = (Vec::new(), Timestamp::NEVER);
    loop {
        let view = tokio::select! {
            biased;
            view = asking.next() => view,
            () = background::sleep_until(until) => None,
        };
        let Some(view) = view else { return views };
        if view.is_ok() {
            until = until.min(Timestamp::now() + GRACE);
        }
        views.push(view);
    }
}

fn read(reply: Value, host: &str) -> Result<View> {
    let text: String =
        from_redis_value(reply).map_err(|error| errors::unexpected_reply(&error.to_string()))?;
    View::read(&text, host).ok_or_else(|| errors::unexpected_reply("no list of nodes"))
}

fn refused(error: &RedisError, address: &str) -> Error {
    if error.to_string().contains("cluster support disabled") {
        let message = format!("{address} is not a node of a cluster: use redis:// for one server");
        return Error::new(ErrorKind::Misused, message);
    }
    errors::of_call(error)
}
