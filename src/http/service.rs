//! The `tower` service and its future.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admission::{Admission, admit, give_back};
use super::body::LimitBody;
use super::grpc;
use super::layer::Settings;

/// A service behind a [`RateLimitLayer`](super::RateLimitLayer).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(super) const fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<LimitBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    /// Ready as the inner service is: there is no request yet to be limited, and readiness may be dropped unused.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The instance that was polled ready is the one that is called. The clone that stays is not ready yet.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let (parts, body) = request.into_parts();
        let grpc = grpc::kind(&parts.headers);
        let admission = Box::pin(admit(&self.settings, &parts));
        let call = Some((inner, Request::from_parts(parts, body)));
        ResponseFuture {
            settings: Arc::clone(&self.settings),
            grpc,
            admitted: None,
            state: State::Asking { admission, call },
        }
    }
}

pin_project! {
    /// The answer of a [`RateLimit`] service.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        settings: Arc<Settings>,
        grpc: Option<&'static str>,
        admitted: Option<Admission>,
        #[pin]
        state: State<S, B, S::Future, S::Response>,
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pin_project! {
    #[project = StateProject]
    enum State<S, B, F, R> {
        Asking { admission: Boxed<Admission>, call: Option<(S, Request<B>)> },
        Calling { #[pin] response: F },
        Refunding { refund: Boxed<()>, response: Option<R> },
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<LimitBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProject::Asking { admission, call } => {
                    let admission = ready!(admission.as_mut().poll(cx));
                    if !admission.answer.is_allowed() {
                        let Settings { refusal, fields, .. } = &**this.settings;
                        let response = refusal.response(&admission.answer, *this.grpc, fields, admission.took);
                        return Poll::Ready(Ok(response.map(LimitBody::refusal)));
                    }
                    *this.admitted = Some(admission);
                    // Polled again after it was done: there is nothing left to give.
                    let Some((mut inner, request)) = call.take() else { return Poll::Pending };
                    let response = inner.call(request);
                    this.state.set(State::Calling { response });
                }
                StateProject::Calling { response } => {
                    let response = ready!(response.poll(cx))?;
                    let (parts, body) = response.into_parts();
                    let refunded = this.settings.refund_if.as_ref().is_some_and(|chosen| chosen(&parts));
                    let response = Response::from_parts(parts, body);
                    let receipt =
                        this.admitted.as_ref().filter(|_| refunded).and_then(|admitted| admitted.answer.receipt());
                    let Some(receipt) = receipt.cloned() else {
                        return Poll::Ready(Ok(finished(this.settings, this.admitted.take(), response)));
                    };
                    let limiter = this.settings.limiter.clone();
                    let refund = Box::pin(async move { give_back(&limiter, receipt).await });
                    this.state.set(State::Refunding { refund, response: Some(response) });
                }
                StateProject::Refunding { refund, response } => {
                    ready!(refund.as_mut().poll(cx));
                    let Some(response) = response.take() else { return Poll::Pending };
                    return Poll::Ready(Ok(finished(this.settings, this.admitted.take(), response)));
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The service's own response, with the fields that tell its client the limits.
fn finished<R>(settings: &Settings, admitted: Option<Admission>, response: Response<R>) -> Response<LimitBody<R>> {
    let (mut parts, body) = response.into_parts();
    if let Some(Admission { answer, took }) = admitted {
        settings.fields.write(&mut parts.headers, &mut parts.extensions, &answer, took);
    }
    Response::from_parts(parts, LimitBody::inner(body))
}
