//! Reports that the processes of a fabric write about themselves when one of them, or a
//! program that has opened no device, asks for them.
//!
//! The upper half of the word of switched ports is the number of the last request, so
//! that processes look at one word only. A process that finds another number writes its
//! report, with the number, to the file `slot-NN.report`, which it replaces.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::directory::FabricDirectory;
use super::name::FabricName;
use super::ports;
use super::registry::ProcessSlot;

/// How long a request waits for reports. A process that is stopped writes none.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);

/// Returns the reports of all running processes. Joins nothing.
pub(crate) fn collect(name: &FabricName) -> Vec<Vec<u8>> {
    collect_under(&FabricDirectory::bases(), name, PATIENCE).unwrap_or_default()
}

fn collect_under(bases: &[PathBuf], name: &FabricName, patience: Duration) -> Option<Vec<Vec<u8>>> {
    let directory = FabricDirectory::find(bases, name)?;
    let (request, mut waiting) = {
        let _lock = directory.lock().ok()??;
        let living = ports::living(&directory);
        let file = directory.segment().ok()?;
        let next = |word: u64| word.wrapping_add(1 << 32);
        let word = ports::change_word(&directory, &file, &living, next);
        (ports::request_of_word(word.ok()?), living)
    };
    let end = Instant::now() + patience;
    let mut reports = Vec::new();
    loop {
        waiting.retain(
            |&slot| match ProcessSlot::new(directory.clone(), slot).report() {
                Some((number, report)) if number.wrapping_sub(request).cast_signed() >= 0 => {
                    reports.push(report);
                    false
                }
                _ => directory.is_alive(slot),
            },
        );
        if waiting.is_empty() || Instant::now() >= end {
            return Some(reports);
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::attachment::Attachment;
    use crate::fabric::tests::Scratch;

    #[test]
    fn every_running_process_reports_once_for_a_request() {
        let scratch = Scratch::new("reports");
        let name = FabricName::default();
        let bases = [scratch.0.clone()];
        let ask = |patience| collect_under(&bases, &name, patience);
        assert_eq!(ask(PATIENCE), None, "no fabric yet");
        let (one, two) = (scratch.join(), scratch.join());
        // Both answer in a thread of their own, when they find the request.
        let answer = |process: Attachment, text: &[u8]| {
            while !process.waker().has_pending() {
                std::thread::yield_now();
            }
            assert!(process.waker().take_switched_ports().is_some());
            process.report(text);
            process
        };
        let (mut reports, one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| answer(one, b"one"));
            let two = scope.spawn(|| answer(two, b"two"));
            let reports = ask(Duration::from_secs(100)).unwrap();
            (reports, one.join().unwrap(), two.join().unwrap())
        });
        reports.sort();
        assert_eq!(reports, [b"one", b"two"]);
        drop(two);
        // The report of before does not count, nor does a process that has left.
        assert_eq!(ask(Duration::ZERO), Some(Vec::new()));
        assert!(one.waker().take_switched_ports().unwrap().is_empty());
    }
}
