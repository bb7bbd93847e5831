//! Calls become calls on the library.

use crate::{
    calls::{Answer, Ask, Call, table::Action},
    server::Server,
};

pub(crate) async fn carry_out(server: &Server, call: &Call) -> Answer {
    match call {
        Call::Act { action, name, ask } => act(server, *action, name, ask).await,
        _ => Answer::unavailable("not there yet"),
    }
}

async fn act(_server: &Server, action: Action, _name: &str, _ask: &Ask) -> Answer {
    match action {
        Action::WaitEvent => std::future::pending().await,
        _ => Answer::done(),
    }
}

impl Server {
    /// Whether the store answers.
    pub async fn ready(&self) -> Answer {
        Answer::text("ready")
    }

    /// The text for Prometheus.
    pub fn render_metrics(&self) -> String {
        self.metrics.render(self.waits.now(), self.connections.now())
    }
}
