//! Who a session's client is, as far as it said.

use std::sync::PoisonError;

use rmcp::RoleServer;
use rmcp::model::{Implementation, RequestId};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::{Session, resources};
use crate::engine::Caller;

impl Session {
    /// Who a run is recorded for.
    pub(super) fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        Caller {
            session: self.client.session.clone(),
            client: Some(self.name()),
            request: self.id(&context.id),
            view: self.client.view(),
            project: self.project(),
            model: resources::model(&context.meta),
        }
    }

    /// A request's id as the client wrote it.
    pub(super) fn id(&self, id: &RequestId) -> Value {
        match id {
            RequestId::Number(number) => self.requests.id(*number),
            RequestId::String(_) => None,
        }
        .map_or(Value::Null, |id| id.value())
    }

    /// Takes the name a client gives itself, unless it came with a label. For display only.
    pub(super) fn note_client(&self, info: &Implementation) {
        if self.client.label.is_none() {
            let name: String = info.name.chars().take(64).collect();
            *self
                .client
                .name
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = crate::engine::output::visible(&name);
        }
    }

    /// Its label, else the name it gave itself.
    pub(super) fn name(&self) -> String {
        self.client
            .name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
