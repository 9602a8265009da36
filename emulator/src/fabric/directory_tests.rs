//! Tests of where a fabric's files are, and when they are removed.

use std::path::{Path, PathBuf};

use super::attachment::Attachment;
use super::directory::FabricDirectory;
use super::name::FabricName;
use super::tests::{Scratch, join, packet, psns};

/// Returns a candidate directory for this user's fabrics under a base.
fn parent(base: &Path, number: u32) -> PathBuf {
    // SAFETY: geteuid(2) cannot fail.
    let user = unsafe { libc::geteuid() };
    match number {
        0 => base.join(format!("mlx5emu-{user}")),
        n => base.join(format!("mlx5emu-{user}-{n}")),
    }
}

#[test]
fn a_directory_open_to_other_users_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("open");
    let first = parent(&scratch.0, 0);
    std::fs::create_dir(&first).unwrap();
    std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(parent(&scratch.0, 1), "a file").unwrap();
    std::os::unix::fs::symlink("/tmp", parent(&scratch.0, 2)).unwrap();
    let (mut one, mut two) = (scratch.join(), scratch.join());
    assert!(one.directory().starts_with(parent(&scratch.0, 3)));
    let problems: Vec<_> = one
        .untrusted_entries()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        problems[0].ends_with("is open to other users (mode 755)"),
        "{problems:?}"
    );
    assert!(problems[1].ends_with("is not a directory"), "{problems:?}");
    assert!(problems[2].ends_with("is not a directory"), "{problems:?}");
    one.send(2, &packet(1, 2, 7, b"")).unwrap();
    assert_eq!(psns(&mut two), [7]);
    // After the untrusted entries are removed, a third process still joins the
    // first two.
    std::fs::remove_dir(&first).unwrap();
    std::fs::remove_file(parent(&scratch.0, 1)).unwrap();
    std::fs::remove_file(parent(&scratch.0, 2)).unwrap();
    let third = scratch.join();
    assert_eq!((third.slot(), third.directory()), (3, one.directory()));
    drop((one, two, third));
    let fourth = scratch.join();
    assert!(fourth.directory().starts_with(&first));
    assert!(fourth.untrusted_entries().is_empty());
}

#[test]
fn a_directory_of_another_user_is_reported_and_not_used() {
    // SAFETY: geteuid(2) cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can create another user's directory");
        return;
    }
    let scratch = Scratch::new("squatter");
    for number in 0..8 {
        let directory = parent(&scratch.0, number);
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(65534), None).unwrap();
    }
    let error = join(&scratch.0).unwrap_err().to_string();
    assert!(error.contains("belongs to user 65534"), "{error}");
    assert!(error.contains("TMPDIR"), "{error}");
    let second = Scratch::new("beside-squatter");
    let bases = [scratch.0.clone(), second.0.clone()];
    let attachment = Attachment::join_under(&bases, &FabricName::default()).unwrap();
    assert!(attachment.directory().starts_with(&second.0));
    assert_eq!(attachment.untrusted_entries().len(), 8);
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
fn a_sweep_removes_dead_fabrics_only() {
    let scratch = Scratch::new("sweep");
    let bases = [scratch.0.clone()];
    let named = |name| FabricName::new(name).unwrap();
    let alive = Attachment::join_under(&bases, &named("alive")).unwrap();
    // A killed process leaves its files without locks.
    let dead = FabricDirectory::create(&bases, &named("dead")).unwrap();
    drop(dead.lock().unwrap());
    drop(dead.take_slot(1).unwrap());
    dead.fifo(1, true).unwrap();
    dead.segment().unwrap();
    let joining = FabricDirectory::create(&bases, &named("joining")).unwrap();
    let held = joining.lock().unwrap();
    // A process that joins has created the directory and not yet the lock: it
    // notices the removal and starts again.
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
