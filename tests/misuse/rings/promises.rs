//! The caller of an unsafe function promises what a ring cannot check: that memory is
//! valid and stays so, and that the device is done with a request.

use mlx5_rings::PostReceives;
use mlx5_rings::complete::CompletionRing;
use mlx5_rings::layout::{CompletionLayout, RecvLayout, SendLayout, SharedRecvLayout};
use mlx5_rings::mmio::DoorbellRecord;
use mlx5_rings::receive::{RecvConsumer, RecvProducer};
use mlx5_rings::request::{RecvRequest, SendFlags, SendRequest};
use mlx5_rings::send::{SendConsumer, SendProducer};
use mlx5_rings::shared::SharedRecvConsumer;
use mlx5_rings::wire::{OwnOp, WindowChange};

fn made(
    send: &SendLayout,
    recv: &RecvLayout,
    shared: &SharedRecvLayout,
    completion: &CompletionLayout,
) {
    let _ = SendConsumer::new(send);
    let _ = RecvConsumer::new(recv);
    let _ = SharedRecvConsumer::new(shared);
    let _ = CompletionRing::new(completion);
    let _ = DoorbellRecord::new(recv.dbrec);
    let _ = RecvProducer::none();
}

fn posted(
    sends: &mut SendProducer,
    receives: &mut RecvProducer,
    (send, recv): (&SendRequest<'_>, &RecvRequest<'_>),
    change: &WindowChange,
) {
    let _ = sends.post(send, 0);
    let _ = sends.post_change(1, change, SendFlags::empty(), 0);
    let _ = receives.post(recv);
}

fn completed(sends: &SendConsumer, receives: &RecvConsumer, shared: &SharedRecvConsumer) {
    let _ = sends.retire(0);
    receives.retire(1);
    shared.free(0);
    let _ = shared.take_next(0);
}

fn consumed(ring: &mut CompletionRing) {
    let mut run = ring.run(OwnOp(0));
    run.advance(|_| {});
    ring.end_run(run, 1);
    ring.advance();
}

fn main() {
    let _ = (made, posted, completed, consumed);
}
