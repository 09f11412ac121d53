//! Certificates that only a test trusts.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority of the test's own.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Makes one.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Its certificate, for those who trust it.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn server(&self, name: &str) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(vec![name.to_owned()])
            .expect("parameters")
            .signed_by(&key, &self.issuer)
            .expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a configuration");
        Arc::new(config)
    }
}
