//! What the launcher reads in a program's file: whether the program can load the library of the
//! emulated devices, and what must be loaded before it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A program. Scripts and unreadable files need nothing.
#[derive(Default)]
pub(super) struct Program {
    /// Why it gets no device, and what to do.
    pub(super) obstacle: Option<String>,
    /// The runtime of AddressSanitizer that it needs, which must be the first library.
    pub(super) sanitizer: Option<String>,
}

impl Program {
    /// Reads the file of a command, which is looked for as `execvp` does.
    pub(super) fn of(command: &OsStr) -> Self {
        let Some(path) = find(command) else {
            return Self::default();
        };
        let elf = File::open(&path).ok().map(Elf).filter(Elf::is_elf);
        let why = if changes_user(&path) {
            Some(
                "changes the user, so neither it nor what it starts sees the emulated devices: \
                 start the launcher by it, as in \"sudo mlx5-emu run -- PROGRAM\""
                    .into(),
            )
        } else {
            let program = elf.as_ref().filter(|_| !is_loader(&path));
            program.and_then(Elf::obstacle)
        };
        let needs = elf.map_or_else(Vec::new, |elf| elf.needs());
        Self {
            obstacle: why.map(|why| format!("{} {why}", path.display())),
            sanitizer: needs.into_iter().find(|name| is_sanitizer(name)),
        }
    }
}

/// Returns whether a library, given by name or path, is the runtime of AddressSanitizer.
pub(super) fn is_sanitizer(library: &str) -> bool {
    let name = library.rsplit('/').next().unwrap_or(library);
    name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan")
}

/// Returns whether a file is the dynamic loader, which needs none itself, and loads any program.
fn is_loader(path: &Path) -> bool {
    let name = path.canonicalize().ok();
    let name = name.as_deref().and_then(Path::file_name);
    name.is_some_and(|name| name.as_bytes().starts_with(b"ld-"))
}

fn find(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        // Opening another kind of file can wait for ever.
        return Some(PathBuf::from(command)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&path).map(|place| place.join(command));
    places.find(|place| place.is_file())
}

/// Returns whether the kernel gives the program other rights than this process has, or it is
/// sudo, which removes `LD_PRELOAD` for root, too.
fn changes_user(path: &Path) -> bool {
    // SAFETY: neither call has preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let by_bit = path.metadata().is_ok_and(|it| {
        it.mode() & libc::S_ISUID != 0 && it.uid() != user
            || it.mode() & libc::S_ISGID != 0 && it.gid() != group
    });
    by_bit || path.file_name().is_some_and(|name| name == "sudo")
}

/// An ELF file. Its numbers make sense if it is of 64 bits and little-endian, as this program is.
struct Elf(File);

/// Type, offset in the file, address and size of a segment.
type Segment = [u64; 4];

const INTERPRETER: u64 = libc::PT_INTERP as u64;
const DYNAMIC: u64 = libc::PT_DYNAMIC as u64;
const LOAD: u64 = libc::PT_LOAD as u64;

impl Elf {
    fn is_elf(&self) -> bool {
        self.number::<4>(0) == Some(u64::from(u32::from_le_bytes(*b"\x7fELF")))
    }

    /// Returns a little-endian number of `SIZE` bytes.
    fn number<const SIZE: usize>(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes[..SIZE], at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Returns a string up to its NUL, of at most 255 bytes.
    fn text(&self, at: u64) -> Option<String> {
        let mut bytes = [0; 256];
        let len = self.0.read_at(&mut bytes, at).ok()?;
        let end = bytes[..len].iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    fn segments(&self) -> Vec<Segment> {
        let table = (
            self.number::<8>(32),
            self.number::<2>(54),
            self.number::<2>(56),
        );
        let (Some(start), Some(size), Some(count)) = table else {
            return Vec::new();
        };
        let read = |index| {
            let at = start.checked_add(index * size)?;
            let [offset, address, len] = [8, 16, 32].map(|field| at.checked_add(field));
            Some([
                self.number::<4>(at)?,
                self.number::<8>(offset?)?,
                self.number::<8>(address?)?,
                self.number::<8>(len?)?,
            ])
        };
        (0..count).map_while(read).collect()
    }

    /// Returns why the library of the emulated devices cannot be loaded, and what to do.
    fn obstacle(&self) -> Option<String> {
        const CLASS: u64 = 4;
        const MACHINE: u64 = 18;
        let own = Self(File::open("/proc/self/exe").ok()?);
        let kind = |elf: &Self| (elf.number::<1>(CLASS), elf.number::<2>(MACHINE));
        if kind(self) != kind(&own) {
            return Some(
                "is for another processor than the library of the emulated devices, and sees \
                 none: build it for this one"
                    .into(),
            );
        }
        let segments = self.segments();
        let interpreter = segments.iter().find(|it| it[0] == INTERPRETER);
        let Some(&[_, offset, ..]) = interpreter else {
            return Some(
                "is linked statically, so it cannot load the library of the emulated devices, \
                 and sees none: link it dynamically (in Go, CGO_ENABLED=1)"
                    .into(),
            );
        };
        let interpreter = self.text(offset)?;
        interpreter.contains("musl").then(|| {
            format!(
                "needs the C library musl ({interpreter}), but the library of the emulated \
                 devices needs glibc: build it for glibc"
            )
        })
    }

    /// Returns the names of the libraries that it needs itself.
    fn needs(&self) -> Vec<String> {
        const NEEDED: u64 = 1;
        const STRING_TABLE: u64 = 5;
        let segments = self.segments();
        let dynamic = segments.iter().find(|it| it[0] == DYNAMIC);
        let entries: Vec<[u64; 2]> = dynamic.map_or_else(Vec::new, |&[_, offset, _, len]| {
            let entry = |at| Some([self.number::<8>(at)?, self.number::<8>(at.checked_add(8)?)?]);
            let places = (offset..offset.saturating_add(len)).step_by(16);
            places
                .map_while(entry)
                .take_while(|it| it[0] != 0)
                .collect()
        });
        let table = entries.iter().find(|it| it[0] == STRING_TABLE);
        let table = table.and_then(|&[_, address]| {
            let holds = |it: &&Segment| it[0] == LOAD && address.wrapping_sub(it[2]) < it[3];
            let &[_, offset, start, _] = segments.iter().find(holds)?;
            offset.checked_add(address - start)
        });
        let needed = entries.iter().filter(|it| it[0] == NEEDED);
        needed
            .filter_map(|it| self.text(table?.checked_add(it[1])?))
            .collect()
    }
}
