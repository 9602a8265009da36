//! Where the files of a fabric are, and when they go.

use std::path::{Path, PathBuf};

use super::attachment::Attachment;
use super::directory::FabricDirectory;
use super::name::FabricName;
use super::tests::{Scratch, join, packet, psns};

/// The directory of this user's fabrics under a base, by its number.
fn parent(base: &Path, number: u32) -> PathBuf {
    // SAFETY: geteuid(2) cannot fail.
    let user = unsafe { libc::geteuid() };
    match number {
        0 => base.join(format!("mlx5emu-{user}")),
        n => base.join(format!("mlx5emu-{user}-{n}")),
    }
}

#[test]
fn a_directory_that_others_may_enter_is_passed_over() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("open");
    let first = parent(&scratch.0, 0);
    std::fs::create_dir(&first).unwrap();
    std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(parent(&scratch.0, 1), "a file").unwrap();
    std::os::unix::fs::symlink("/tmp", parent(&scratch.0, 2)).unwrap();
    let (mut one, mut two) = (scratch.join(), scratch.join());
    assert!(one.directory().starts_with(parent(&scratch.0, 3)));
    let told: Vec<_> = one.passed_over().iter().map(ToString::to_string).collect();
    assert!(
        told[0].ends_with("is open to other users (mode 755)"),
        "{told:?}"
    );
    assert!(told[1].ends_with("is not a directory"), "{told:?}");
    assert!(told[2].ends_with("is not a directory"), "{told:?}");
    one.send(2, &packet(1, 2, 7, b"")).unwrap();
    assert_eq!(psns(&mut two), [7]);
    // The foreign entries go: a third process still finds the first two.
    std::fs::remove_dir(&first).unwrap();
    std::fs::remove_file(parent(&scratch.0, 1)).unwrap();
    std::fs::remove_file(parent(&scratch.0, 2)).unwrap();
    let third = scratch.join();
    assert_eq!((third.slot(), third.directory()), (3, one.directory()));
    drop((one, two, third));
    let fourth = scratch.join();
    assert!(fourth.directory().starts_with(&first));
    assert!(fourth.passed_over().is_empty());
}

#[test]
fn a_squatter_is_another_user_and_named() {
    // SAFETY: geteuid(2) cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can create another user's directory");
        return;
    }
    let scratch = Scratch::new("squatter");
    for number in 0..8 {
        let squatted = parent(&scratch.0, number);
        std::fs::create_dir(&squatted).unwrap();
        std::os::unix::fs::chown(&squatted, Some(65534), None).unwrap();
    }
    let error = join(&scratch.0).unwrap_err().to_string();
    assert!(error.contains("belongs to user 65534"), "{error}");
    assert!(error.contains("TMPDIR"), "{error}");
    let second = Scratch::new("beside-squatter");
    let bases = [scratch.0.clone(), second.0.clone()];
    let attachment = Attachment::join_under(&bases, &FabricName::default()).unwrap();
    assert!(attachment.directory().starts_with(&second.0));
    assert_eq!(attachment.passed_over().len(), 8);
    drop(attachment);
    std::fs::remove_dir(parent(&scratch.0, 5)).unwrap();
    assert!(
        scratch
            .join()
            .directory()
            .starts_with(parent(&scratch.0, 5))
    );
}

#[test]
fn a_sweep_removes_dead_fabrics_and_no_other() {
    let scratch = Scratch::new("sweep");
    let bases = [scratch.0.clone()];
    let named = |name| FabricName::new(name).unwrap();
    let alive = Attachment::join_under(&bases, &named("alive")).unwrap();
    // What killed processes leave: the files, and no lock held.
    let dead = FabricDirectory::create(&bases, &named("dead")).unwrap();
    drop(dead.lock().unwrap());
    drop(dead.take_slot(1).unwrap());
    dead.fifo(1, true).unwrap();
    dead.segment().unwrap();
    let joining = FabricDirectory::create(&bases, &named("joining")).unwrap();
    let held = joining.lock().unwrap();
    // Between creating the directory and its lock: the joining process
    // notices, and begins again.
    let empty = FabricDirectory::create(&bases, &named("empty")).unwrap();
    FabricDirectory::sweep(&bases);
    assert!(alive.directory().join("segment").exists());
    assert!(joining.path().exists() && !dead.path().exists());
    assert!(!empty.path().exists() && empty.lock().unwrap().is_none());
    drop(held);
    FabricDirectory::sweep(&bases);
    assert!(!joining.path().exists());
    drop(alive);
    assert!(scratch.is_empty());
}
