//! Opens a device, creates one object of each kind, connects two QPs with each
//! other, and prints where their rings lie: a first look at an unknown device.
//!
//! `open [DEVICE]`; the first usable device without an argument.

use dat_engine::control::{QpSpec, QpState, VerbsCq, VerbsQp, VerbsSrq};
use dat_engine::{Access, ConnectOptions, ControlError, CqeSize, DataPath, Device, devices};
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    match name
        .map_or_else(first_usable, Ok)
        .and_then(|name| look_at(&name))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn first_usable() -> Result<String, ControlError> {
    let devices = devices()?;
    for device in &devices {
        println!("{}: {}", device.name, device.path);
    }
    let direct = devices
        .into_iter()
        .find(|device| device.path == DataPath::Direct);
    // Without a device, opening the usual name reports the reason.
    Ok(direct.map_or_else(|| "mlx5_0".to_owned(), |device| device.name))
}

fn look_at(name: &str) -> Result<(), ControlError> {
    let device = Device::open(name)?;
    println!("{:#?}\n{:#?}", device.info(), device.limits());

    let domain = device.alloc_pd()?;
    let buffer = domain.allocate(1 << 16, Access::default())?;
    println!(
        "buffer: {:p}, rkey {:#x}",
        buffer.as_ptr(),
        buffer.region().rkey()
    );

    let channel = device.create_channel()?;
    let cq = VerbsCq::create(&device, 256, CqeSize::B64, Some(&channel), 0)?;
    let wide_cq = VerbsCq::create(&device, 256, CqeSize::B128, None, 0)?;
    let srq = VerbsSrq::create(&domain, 64, 2)?;
    println!(
        "{:#?}\n{:#?}\n{:#?}",
        cq.layout(),
        wide_cq.layout(),
        srq.layout()
    );
    srq.set_limit(8)?;
    println!("SRQ limit: {}", srq.limit()?);
    if let Err(error) = srq.resize(128) {
        println!("as expected, {error}");
    }

    let spec = QpSpec {
        send_cq: &cq,
        recv_cq: &wide_cq,
        srq: None,
        send_depth: 64,
        recv_depth: 64,
        send_segments: 2,
        recv_segments: 2,
        inline_bytes: 64,
        inline_or_fewer: true,
        exclusive_register: true,
        payload_in_completion: true,
        windows: false,
    };
    let a = VerbsQp::create(&domain, &spec)?;
    let b = VerbsQp::create(
        &domain,
        &QpSpec {
            srq: Some(&srq),
            exclusive_register: false,
            ..spec
        },
    )?;
    println!("{:#?}\n{:#?}", a.send_layout(), a.recv_layout());
    println!("{:#?}\n{:#?}", b.send_layout(), b.recv_layout());

    let options = ConnectOptions::default();
    for (qp, peer) in [(&a, &b), (&b, &a)] {
        qp.to_init(&options)?;
        qp.to_rtr(&peer.local_address(options.port)?, &options)?;
        qp.to_rts(&options)?;
        println!("QP {:#x}: {}", qp.qpn(), qp.state()?);
        assert_eq!(qp.state()?, QpState::ReadyToSend);
    }
    if let Err(error) = a.to_init(&options) {
        println!("as expected, {error}");
    }
    a.to_error()?;
    // SAFETY: no endpoint uses the QP.
    unsafe { a.to_reset() }?;
    println!("QP {:#x}: {}", a.qpn(), a.state()?);
    for event in device.async_events() {
        println!("{:?}", event?);
    }
    println!("completion events: {}", channel.drain()?);
    Ok(())
}
