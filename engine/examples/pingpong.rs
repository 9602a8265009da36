//! A ping-pong between two endpoints of this process, with every step of the
//! engine: open, register, create, connect, post, poll.
//!
//! `pingpong [DEVICE [ROUNDS]]`; by default the first mlx5 device and 1000 round
//! trips.

use std::error::Error;
use std::time::Instant;

use dat_engine::{
    Access, CompletionQueue, ConnectOptions, CqOptions, DataPath, Device, Endpoint,
    EndpointOptions, ProtectionDomain, RecvRequest, RegisteredBuffer, SendFlags, SendOp,
    SendRequest, Status, devices,
};

const MESSAGE: &[u8] = b"sixteen bytes...";
const PORT: u8 = 1;

/// One end of the connection. Fields are dropped in order: the memory of the
/// requests is dropped last.
struct End {
    endpoint: Endpoint,
    cq: CompletionQueue,
    buffer: RegisteredBuffer,
}

impl End {
    fn new(device: &Device, domain: &ProtectionDomain) -> Result<Self, Box<dyn Error>> {
        let cq = device.create_cq(&CqOptions {
            depth: 64,
            ..CqOptions::default()
        })?;
        let endpoint = domain.create_endpoint(&EndpointOptions {
            send_depth: 16,
            recv_depth: 16,
            exclusive_register: true,
            ..EndpointOptions::new(&cq, &cq)
        })?;
        let buffer = domain.allocate(4096, Access::default())?;
        Ok(Self {
            endpoint,
            cq,
            buffer,
        })
    }

    /// Posts a receive, before the peer can send.
    fn expect(&mut self) -> Result<(), Box<dyn Error>> {
        let segment = self.buffer.segment(2048, 2048).ok_or("buffer too small")?;
        let request = RecvRequest {
            wr_id: 1,
            segments: &[segment],
        };
        // SAFETY: the second half of the buffer is not used otherwise until the
        // receive completes, and outlives the endpoint.
        unsafe { self.endpoint.post_recv(&request) }?;
        Ok(())
    }

    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        let length = u32::try_from(MESSAGE.len())?;
        let segment = self.buffer.segment(0, length).ok_or("buffer too small")?;
        let request = SendRequest {
            wr_id: 2,
            op: SendOp::Send,
            flags: SendFlags::SIGNALED,
            segments: &[segment],
        };
        // SAFETY: the first half of the buffer is written once, before the
        // first send, and outlives the endpoint.
        unsafe { self.endpoint.post_send(&request) }?;
        Ok(())
    }

    /// Polls until the completion with that `wr_id`, which must be successful.
    fn wait(&mut self, wr_id: u64) -> Result<u32, Box<dyn Error>> {
        loop {
            match self.cq.poll() {
                Some(done) if done.status != Status::Success => {
                    return Err(format!("{}: {}", done.status, done.status.hint()).into());
                }
                Some(done) if done.wr_id == wr_id => return Ok(done.byte_len),
                // The completion of another request, or none yet.
                Some(_) | None => std::hint::spin_loop(),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = match arguments.next() {
        Some(name) => name,
        None => devices()?
            .into_iter()
            .find(|device| device.path == DataPath::Direct)
            .map(|device| device.name)
            .ok_or(
                "no mlx5 device here; run this under `mlx5-emu run --` to get an emulated one",
            )?,
    };
    let rounds: u32 = arguments.next().map_or(Ok(1000), |rounds| rounds.parse())?;

    let device = Device::open(&name)?;
    let domain = device.alloc_pd()?;
    let mut ping = End::new(&device, &domain)?;
    let mut pong = End::new(&device, &domain)?;
    for end in [&ping, &pong] {
        // SAFETY: nothing is posted yet, so the buffer has no other user.
        unsafe {
            let to = end.buffer.as_ptr().as_ptr();
            to.copy_from_nonoverlapping(MESSAGE.as_ptr(), MESSAGE.len());
        }
    }

    // Between hosts, the addresses are exchanged by other means first.
    let options = ConnectOptions::default();
    let (here, there) = (
        ping.endpoint.local_address(PORT)?,
        pong.endpoint.local_address(PORT)?,
    );
    ping.endpoint.connect(&there, &options)?;
    pong.endpoint.connect(&here, &options)?;

    pong.expect()?;
    let began = Instant::now();
    for _ in 0..rounds {
        ping.expect()?;
        ping.send()?;
        pong.wait(1)?;
        pong.expect()?;
        pong.send()?;
        let length = ping.wait(1)?;
        assert_eq!(length as usize, MESSAGE.len());
    }
    let each = began.elapsed() / rounds.max(1);
    println!(
        "{name}: {rounds} round trips of {} bytes, {each:?} each",
        MESSAGE.len()
    );
    Ok(())
}
