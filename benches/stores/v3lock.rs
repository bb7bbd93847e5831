//! The calls of etcd that its lock service needs.

use prost::Message;
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::{http::uri::PathAndQuery, tokio_stream},
    transport::Channel,
};
use tonic_prost::ProstCodec;

pub(crate) async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A, Status>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = client.unary(Request::new(request), PathAndQuery::from_static(path), codec).await;
    Ok(answer?.into_inner())
}

/// Renews a lease once, and returns it. Its `ttl` is 0 if it is over.
#[allow(dead_code, reason = "not in every benchmark")]
pub(crate) async fn keep_alive(channel: &Channel, id: i64) -> Result<Lease, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
    let requests = Request::new(tokio_stream::once(KeepAlive { id }));
    let codec = ProstCodec::<KeepAlive, Kept>::default();
    let mut answers = client.streaming(requests, path, codec).await?.into_inner();
    let kept = answers.message().await?.ok_or_else(|| Status::unavailable("the stream has ended"))?;
    Ok(Lease { id: kept.id, ttl: kept.ttl })
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// The answer to a `LeaseGrant`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lease {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct KeepAlive {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Kept {
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Locked {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unlock {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Unlocked {}
