# The server. It listens on all addresses of its container, so it needs a file with tokens:
#
#   openssl rand -hex 32 > tokens
#   docker build -t locker .
#   docker run -v ./tokens:/run/secrets/tokens:ro -p 127.0.0.1:5505:5505 -e LOCKER_URL=redis://10.0.0.7 locker
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package locker-server --features redis-tls,postgres-tls,etcd-tls,mysql-tls,zookeeper-tls

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /source/target/release/locker /usr/local/bin/locker
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/locker/
# The path is no secret.
# hadolint ignore=DL3064
ENV LOCKER_HTTP=0.0.0.0:5505 LOCKER_ZMQ=off LOCKER_TOKEN_FILE=/run/secrets/tokens
USER 65532:65532
EXPOSE 5505
HEALTHCHECK --interval=10s --timeout=6s --start-period=10s CMD ["/usr/local/bin/locker", "health"]
ENTRYPOINT ["/usr/local/bin/locker"]
CMD ["serve"]
