//! Memory keys: of the guest's whole memory, of lists of its pages, and windows.

use mlx5emu::spec::{Access, MrSpec, MwSpec, PdId, WindowType};

use super::function::{Kind, Object};
use super::{CONTEXT, Function, OBJECT, Outcome, PAGES, Status};
use crate::bits::{part, part_mut};
use crate::keys::{Key, addresses};
use crate::layout::{create_mkey_in, mkc, query_special_contexts_out};
use crate::memory::WINDOW;

/// How a key translates addresses (`mkc.access_mode`).
const PHYSICAL: u64 = 0;
const PAGE_LIST: u64 = 1;
const KEY_LIST: u64 = 2;
/// The most pages of a key: 32 GiB of small ones.
const MOST_PAGES: u64 = 8 << 20;
/// The key that stands for no key, as on a ConnectX.
const RESERVED_LKEY: u64 = 0x100;

pub(super) fn create(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let key = part(input, CONTEXT);
    let context = function.context()?;
    let pd = PdId(mkc::PD.get32(key));
    let mode = mkc::ACCESS_MODE_4_2.get(key) << 2 | mkc::ACCESS_MODE_1_0.get(key);
    let variant = mkc::MKEY_7_0.get(key) as u8;
    let start = mkc::START_ADDR.get(key);
    let is_free = mkc::FREE.is_set(key);
    if is_free && mode == KEY_LIST {
        let is_two = mkc::EN_RINVAL.is_set(key);
        let kind = if is_two {
            WindowType::Two
        } else {
            WindowType::One
        };
        let spec = MwSpec { context, pd, kind };
        let window = function.emulator.nic().create_window(&spec, variant)?;
        return add(function, output, Kind::Window, window.handle, key);
    }
    let mut listed = None;
    let (address, length) = match mode {
        PHYSICAL if mkc::LENGTH64.is_set(key) => (function.memory.window(), WINDOW),
        PHYSICAL => {
            let length = mkc::LEN.get(key);
            let address = function.memory.address(start, length);
            (address.ok_or(Status::BadParameter)?, length)
        }
        PAGE_LIST => {
            // Two addresses in an octword.
            let given = 2 * create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE.get(input);
            let room = 2 * mkc::TRANSLATIONS_OCTWORD_SIZE.get(key);
            if given.max(room) > MOST_PAGES {
                return Err(Status::BadParameter);
            }
            if !function.keys.have_room(given as usize) {
                return Err(Status::Limit);
            }
            let mut pages = Key {
                list: addresses(part(input, PAGES)).take(given as usize).collect(),
                most: given.max(room) as usize,
                log_size: mkc::LOG_PAGE_SIZE.get32(key),
                start,
                length: mkc::LEN.get(key),
                ..Key::default()
            };
            let nowhere = (function.memory.window(), 0);
            let place = match is_free {
                true => nowhere,
                false => pages
                    .map(&function.memory)
                    .map(|it| (it.start, it.length))?,
            };
            listed = Some(pages);
            place
        }
        _ => return Err(Status::BadParameter),
    };
    let mut access = Access::MW_BIND;
    access.set(Access::LOCAL_WRITE, mkc::LW.is_set(key));
    access.set(Access::REMOTE_READ, mkc::RR.is_set(key));
    access.set(Access::REMOTE_WRITE, mkc::RW.is_set(key));
    access.set(Access::REMOTE_ATOMIC, mkc::A.is_set(key));
    let spec = MrSpec {
        context,
        // The driver sets it with the rest, by a UMR.
        pd: if is_free && pd.0 == 0 {
            function.own_domain()?
        } else {
            pd
        },
        start: address,
        length,
        hca_va: start,
        access,
    };
    let region = function
        .emulator
        .nic()
        .create_key(&spec, variant, is_free)?;
    if let Some(pages) = listed {
        function.keys.lock().insert(region.handle, pages);
    }
    add(function, output, Kind::Key, region.handle, key)
}

fn add(function: &mut Function, output: &mut [u8], kind: Kind, index: u32, key: &[u8]) -> Outcome {
    let object = Object {
        pages: None,
        handle: 0,
        context: key[..64].to_vec(),
    };
    function.add(kind, index, object);
    OBJECT.set(output, index.into());
    Ok(())
}

pub(super) fn destroy(function: &mut Function, input: &[u8], _: &mut [u8]) -> Outcome {
    let (context, index) = (function.context()?, OBJECT.get32(input));
    if function.objects.contains_key(&(Kind::Window, index)) {
        function.emulator.nic().dealloc_mw(context, index)?;
        function.remove(Kind::Window, index);
    } else {
        function.emulator.nic().dereg_mr(context, index)?;
        function.keys.lock().remove(&index);
        function.remove(Kind::Key, index);
    }
    Ok(())
}

pub(super) fn query(function: &mut Function, input: &[u8], output: &mut [u8]) -> Outcome {
    let index = OBJECT.get32(input);
    let of = |kind| function.objects.get(&(kind, index));
    let object = of(Kind::Key)
        .or_else(|| of(Kind::Window))
        .ok_or(Status::BadResource)?;
    for (to, from) in part_mut(output, CONTEXT).iter_mut().zip(&object.context) {
        *to = *from;
    }
    Ok(())
}

pub(super) fn special(function: &mut Function, _: &[u8], output: &mut [u8]) -> Outcome {
    function.context()?;
    query_special_contexts_out::RESD_LKEY.set(output, RESERVED_LKEY);
    Ok(())
}
