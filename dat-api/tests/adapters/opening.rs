//! Opening adapters.

use dat_api::handle::Handle;
use dat_api::object::evd::Evd;
use dat_api::object::ia::{AsyncEvd, Ia, OpenRequest};
use dat_api::object::psp::{EpCreator, Psp};
use dat_api::registry;
use dat_api::types::EvdFlags;
use dat_api::{Kind, ReturnType, Subtype};
use dat_engine::wait::WaitPolicy;

use crate::setup::*;

#[test]
fn a_device_opens_by_name_with_and_without_port_in_either_thread_safety() {
    let _lock = lock_device();
    for name in ["mlx5_0", "mlx5_0-1", "mlx5_1"] {
        for threadsafe in [false, true] {
            let asked = OpenRequest {
                threadsafe,
                ..request(name)
            };
            let (ia, evd) = Ia::open(&asked).expect("the adapter opens");
            let info = ia.query();
            assert_eq!(info.ia.adapter_name, name);
            assert_eq!(info.provider.is_thread_safe, threadsafe);
            assert_eq!(info.async_evd, evd);
            assert_eq!(ia.handle().kind(), Some(Kind::Ia));
            assert_eq!(evd.and_then(Handle::kind), Some(Kind::Evd));
            assert_eq!(
                (ia.device().info().name.as_str(), ia.rules().connect.port),
                (&name[..6], 1)
            );
            close(ia);
        }
    }
}

#[test]
fn each_opening_of_a_device_is_an_adapter_of_its_own() {
    let _lock = lock_device();
    let (first, evd) = open("mlx5_0");
    let (second, other) = open("mlx5_0");
    assert_ne!((first.handle(), evd), (second.handle(), other));
    assert_eq!(first.address(), second.address());
    close(first);
    assert_eq!(second.async_evd(), Some(other));
    close(second);
}

#[test]
fn an_unknown_name_is_not_found_and_the_message_lists_devices() {
    let _lock = lock_device();
    let conf = Conf::new("");
    let not_found = code(ReturnType::ProviderNotFound, Subtype::NameNotRegistered);
    for name in ["nope", "mlx5_9-1", "", " mlx5_0", "mlx5_0\0"] {
        let error = refused(&request(name));
        assert_eq!(error.code(), not_found, "{name:?}");
        for part in ["mlx5_0", "mlx5_1", conf.path()] {
            assert!(error.cause().contains(part), "{part} in {error}");
        }
    }
    let error = refused(&request("mlx5_0-2"));
    assert_eq!(error.code(), not_found);
    assert!(error.cause().contains("no port 2"), "{error}");
    let long = "n".repeat(256);
    let error = refused(&request(&long));
    assert_eq!(
        error.code(),
        code(ReturnType::InvalidParameter, Subtype::InvalidArg1)
    );
    assert_eq!(refused(&request(&long[1..])).code(), not_found);
}

#[test]
fn other_versions_of_dat_are_not_found() {
    let _lock = lock_device();
    for (major, minor) in [(1, 1), (2, 0), (0, 2)] {
        let error = refused(&OpenRequest {
            major,
            minor,
            ..request("mlx5_0")
        });
        assert_eq!(error.code().kind(), Some(ReturnType::ProviderNotFound));
    }
}

#[test]
fn a_new_asynchronous_evd_holds_at_least_one_event() {
    let _lock = lock_device();
    for async_qlen in [0, -1, i32::MIN] {
        let error = refused(&OpenRequest {
            async_qlen,
            ..request("mlx5_0")
        });
        assert_eq!(
            error.code(),
            code(ReturnType::InvalidParameter, Subtype::InvalidArg2)
        );
    }
    let error = refused(&OpenRequest {
        async_qlen: i32::MAX,
        ..request("mlx5_0")
    });
    assert_eq!(
        error.code(),
        code(ReturnType::InsufficientResources, Subtype::ResourceTevd)
    );
}

#[test]
fn a_given_asynchronous_evd_must_be_one_of_the_same_device() {
    let _lock = lock_device();
    let (ia, own) = open("mlx5_0");
    let (other, foreign) = open("mlx5_1");
    let plain = Evd::create(&ia, 4, EvdFlags::DTO, None).expect("an EVD");
    let bad = code(ReturnType::InvalidHandle, Subtype::InvalidHandleEvdAsync);
    let garbage = Handle::from_bits(0xdead_beef).expect("not null");
    for handle in [foreign, plain.handle(), ia.handle(), garbage] {
        let error = refused(&OpenRequest {
            async_evd: AsyncEvd::Existing(handle),
            ..request("mlx5_0")
        });
        assert_eq!(error.code(), bad, "{handle:?}: {error}");
    }
    // The length is ignored with an existing EVD.
    let asked = OpenRequest {
        async_evd: AsyncEvd::Existing(own),
        async_qlen: -7,
        ..request("mlx5_0-1")
    };
    let (second, made) = Ia::open(&asked).expect("the EVD of the first");
    assert_eq!((made, second.async_evd()), (None, Some(own)));
    for ia in [second, ia, other] {
        close(ia);
    }
}

#[test]
fn dat_conf_names_adapters_and_sets_their_options() {
    let _lock = lock_device();
    let conf = Conf::new(
        "fast u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_1 1 wait=block\" \"\"\n\
         other u1.2 nonthreadsafe default libdaplcma.so.1 dapl.1.2 \"ib0 0\" \"\"\n\
         odd u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_1 1 colour=red\" \"\"\n\
         gone u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_7 1\" \"\"\n\
         gid u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1 gid=99\" \"\"\n",
    );
    let (ia, _) = {
        // The file overrides the environment.
        let _variables = Variables::set(&[("DAT_WAIT", "poll")]);
        open("fast")
    };
    assert_eq!(ia.rules().wait, WaitPolicy::Block);
    assert_eq!(ia.device().info().name, "mlx5_1");
    assert_eq!(ia.query().ia.adapter_name, "fast");
    close(ia);
    for (name, cause) in [
        ("other", "libdaplcma.so.1"),
        ("odd", "colour"),
        ("gone", "mlx5_7"),
    ] {
        let error = refused(&request(name));
        assert_eq!(error.code().kind(), Some(ReturnType::ProviderNotFound));
        assert!(error.cause().contains(cause), "{error}");
    }
    assert_eq!(
        refused(&request("gid")).code(),
        code(
            ReturnType::InvalidAddress,
            Subtype::InvalidAddressUnsupported
        )
    );
    // The file does not have it as thread safe.
    let error = refused(&OpenRequest {
        threadsafe: true,
        ..request("fast")
    });
    assert_eq!(error.code().kind(), Some(ReturnType::ProviderNotFound));
    let place = format!("{}:1 has the name as nonthreadsafe", conf.path());
    assert!(error.cause().contains(&place), "{error}");
}

#[test]
fn a_key_that_cannot_be_applied_is_refused_with_the_reason() {
    let _lock = lock_device();
    let line = |name: &str, settings: &str| {
        format!(
            "{name} u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1 {settings}\" \"\"\n"
        )
    };
    let cases = [
        ("level", "sl=16", "sl \"16\" 0 to 15"),
        ("packet", "mtu=1500", "mtu \"1500\" 4096 bytes"),
        (
            "short",
            "timeout=15",
            "timeout=15 local_ca_ack_delay 16 to 31",
        ),
        ("partition", "pkey=0x8123", "pkey=0x8123 0xffff table"),
        ("gid", "gid=99", "gid=99 show_gids"),
    ];
    let lines: String = cases
        .iter()
        .map(|(name, settings, _)| line(name, settings))
        .collect();
    let _conf = Conf::new(&lines);
    for (name, settings, words) in cases {
        let error = refused(&request(name));
        for word in words.split(' ') {
            assert!(error.cause().contains(word), "{settings}: {error}");
        }
    }
}

#[test]
fn environment_variables_set_options() {
    let _lock = lock_device();
    {
        let _variables = Variables::set(&[
            ("DAT_WAIT", "poll"),
            ("DAT_PATH", "direct"),
            ("DAT_CM", "socket"),
        ]);
        let (ia, _) = open("mlx5_0");
        assert_eq!(ia.rules().wait, WaitPolicy::Poll);
        close(ia);
    }
    // The emulated device has no network interface, even where rdma_cm exists.
    let no_rdma_cm = if std::path::Path::new("/sys/class/misc/rdma_cm").exists() {
        ReturnType::InvalidAddress
    } else {
        ReturnType::ModelNotSupported
    };
    for (name, value, kind) in [
        ("DAT_WAIT", "sometimes", ReturnType::InvalidParameter),
        ("DAT_PATH", "scenic", ReturnType::InvalidParameter),
        ("DAT_CM", "rdma_cm", no_rdma_cm),
        ("DAT_LISTEN", "everywhere", ReturnType::InvalidParameter),
        ("DAT_LISTEN", "0.0.0.0", ReturnType::InvalidParameter),
        ("DAT_LISTEN", "203.0.113.7", ReturnType::InvalidAddress),
    ] {
        let _variables = Variables::set(&[(name, value)]);
        let error = refused(&request("mlx5_0"));
        assert_eq!(error.code().kind(), Some(kind), "{error}");
        assert!(error.cause().contains(value), "{error}");
    }
}

/// Returns whether the qualifier is listened on at this address of the host.
fn is_listened(address: &str, qualifier: u64) -> bool {
    let port = u16::try_from(qualifier).expect("a port");
    std::net::TcpStream::connect((address, port)).is_ok()
}

#[test]
fn service_points_listen_on_the_configured_address() {
    let _lock = lock_device();
    let conf = Conf::new(
        "here u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1 listen=127.0.0.3\" \"\"\n\
         bad u1.2 nonthreadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1 listen=eth7\" \"\"\n",
    );
    // On emulated devices the default is loopback. The key overrides the variable, and a chosen
    // address is published.
    let cases = [
        ("mlx5_0", None, "127.0.0.1", &["127.0.0.1"][..]),
        ("mlx5_0", Some("loopback"), "127.0.0.1", &["127.0.0.1"]),
        ("mlx5_0", Some("127.0.0.2"), "127.0.0.2", &["127.0.0.2"]),
        ("here", Some("127.0.0.2"), "127.0.0.3", &["127.0.0.3"]),
        (
            "mlx5_0",
            Some("all"),
            "",
            &["127.0.0.1", "127.0.0.2", "127.0.0.3"],
        ),
    ];
    for (name, variable, published, listened) in cases {
        let variable: Vec<_> = variable
            .map(|value| ("DAT_LISTEN", value))
            .into_iter()
            .collect();
        let _variables = Variables::set(&variable);
        let (ia, _) = open(name);
        if !published.is_empty() {
            assert_eq!(ia.address().ip().to_string(), published);
        }
        let evd = Evd::create(&ia, 4, EvdFlags::CR, None).expect("an EVD");
        let psp = Psp::create_any(&ia, &evd, EpCreator::Consumer).expect("a service point");
        for address in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
            assert_eq!(
                is_listened(address, psp.query().qualifier),
                listened.contains(&address),
                "{name} {variable:?} {address}"
            );
        }
        let psp = psp.handle();
        Psp::free(psp).expect("freed");
        Evd::free(evd.handle()).expect("freed");
        drop(evd);
        close(ia);
    }
    let error = refused(&request("bad"));
    let place = format!("{}:2: in the instance data", conf.path());
    for part in [&*place, "eth7", "loopback", "IP address"] {
        assert!(error.cause().contains(part), "{error}");
    }
}

#[test]
fn listed_names_can_be_opened() {
    let _lock = lock_device();
    let _conf = Conf::new("ia u1.2 threadsafe default libdat.so.1 udapl.1.2 \"mlx5_0 1\" \"\"\n");
    let all = registry::list_providers(registry::VERSION).expect("a list");
    let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["ia", "mlx5_0", "mlx5_1"]);
    for provider in &all {
        let asked = OpenRequest {
            threadsafe: provider.threadsafe,
            major: provider.major,
            minor: provider.minor,
            ..request(&provider.name)
        };
        let (ia, _) = Ia::open(&asked).expect("a listed name opens");
        close(ia);
    }
}
