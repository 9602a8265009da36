//! Instructions per operation, from callgrind's counts of the sections.

use super::meter::Record;
use super::operation::Operation;
use super::worker::COUNTED;
use crate::failure::Failure;
use crate::worker::callgrind::Counts;

/// Returns the instructions per operation, from the recorded sections.
pub(super) fn read(counts: &Counts, records: &[Record]) -> Result<Vec<(Operation, f64)>, Failure> {
    let sections = counts.totals(records.len())?;
    let totals: Vec<u64> = sections
        .iter()
        .map(|section| section.instructions)
        .collect();
    per_operation(records, &totals)
}

/// Returns the instructions per operation: the difference of the last section
/// and the shorter one before it, divided by the difference of their lengths.
/// So work that is done once per section, such as its call, cancels.
fn per_operation(records: &[Record], totals: &[u64]) -> Result<Vec<(Operation, f64)>, Failure> {
    let round = records.len() / COUNTED.len();
    let (few, many) = (round, 2 * round);
    (0..round)
        .map(|at| {
            let (less, more) = (&records[few + at], &records[many + at]);
            let operation = Operation::from_key(&more.operation)
                .filter(|_| less.operation == more.operation && more.count > less.count)
                .ok_or_else(|| Failure::run("the rounds of a worker process differ in their operations; are all programs of the same build?"))?;
            if less.nanoseconds.is_none() || more.nanoseconds.is_none() {
                return Err(Failure::run(format!(
                    "{}: a counted section had to wait for completions; run it again",
                    operation.title()
                )));
            }
            let instructions = totals[many + at] as f64 - totals[few + at] as f64;
            Ok((operation, instructions / f64::from(more.count - less.count)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: Operation, count: u32) -> Record {
        Record {
            operation: operation.key().to_owned(),
            count,
            nanoseconds: Some(1.0),
        }
    }

    #[test]
    fn work_done_once_per_section_cancels() {
        let operations = [Operation::PostRecv, Operation::Empty];
        let records: Vec<_> = COUNTED
            .iter()
            .flat_map(|&count| operations.map(|operation| record(operation, count)))
            .collect();
        let totals = [
            999_999,
            0,
            50 + 128 * 40,
            7 + 128 * 3,
            50 + 256 * 40,
            7 + 256 * 3,
        ];
        assert_eq!(
            per_operation(&records, &totals).unwrap(),
            [(Operation::PostRecv, 40.0), (Operation::Empty, 3.0)]
        );
    }

    #[test]
    fn a_section_that_had_to_wait_is_refused() {
        let mut records: Vec<_> = COUNTED
            .iter()
            .map(|&count| record(Operation::PollRecv, count))
            .collect();
        records[1].nanoseconds = None;
        let failure = per_operation(&records, &[0, 1, 2]).unwrap_err();
        assert!(failure.to_string().contains("run it again"), "{failure}");
    }
}
