//! Measures all cases of a run, as the client or with both sides in this process.

use super::sides::{Command, Sides};
use crate::failure::Failure;
use crate::interrupt;
use crate::report::Progress;

/// What was measured, also before a failure.
pub(crate) struct Measured<O> {
    pub(crate) outcomes: Vec<O>,
    /// Why the run ended.
    pub(crate) ended: Result<(), Failure>,
}

/// Measures all cases. Prints `head`, and the rows of each case when it is measured.
pub(crate) fn measure<P: Command>(
    mut sides: Sides<'_, P>,
    plan: &P,
    head: String,
    rows: impl Fn(&[P::Outcome]) -> String,
) -> Result<Measured<P::Outcome>, Failure> {
    let cases = plan.cases();
    let progress = Progress::begin(head, cases.len())?;
    interrupt::catch();
    let mut recording = plan.recording();
    let mut outcomes = Vec::new();
    let mut ended = cases.into_iter().try_for_each(|case| {
        let (measured, ended) = measure_case(&mut sides, plan, case, &mut recording);
        let shown = match measured.is_empty() {
            true => Ok(()),
            false => progress.rows(&rows(&measured)),
        };
        outcomes.extend(measured);
        ended.and(shown)
    });
    // A call that Ctrl-C interrupted may have failed for that reason.
    if let Err(failure) = interrupt::check() {
        sides.abort(&failure);
        ended = Err(failure);
    }
    progress.end();
    Ok(Measured { outcomes, ended })
}

/// Measures one case through every API, in turns. Returns the results that have rounds, also
/// after a failure.
fn measure_case<P: Command>(
    sides: &mut Sides<'_, P>,
    plan: &P,
    (size, case): (u32, P::Case),
    recording: &mut P::Recording,
) -> (Vec<P::Outcome>, Result<(), Failure>) {
    let amount = &plan.common().amount;
    let mut outcomes: Vec<Option<P::Outcome>> = amount.apis.iter().map(|_| None).collect();
    let ended = amount.passes().try_for_each(|(round, turn)| {
        interrupt::check()?;
        sides.measure(turn, plan, plan.pass(case, round), recording)?;
        let api = amount.apis[turn];
        tracing::debug!(size, round, ?case, api = api.name(), "measured");
        let outcome = outcomes[turn].get_or_insert_with(|| plan.outcome(case, api));
        P::add(outcome, recording);
        Ok(())
    });
    (outcomes.into_iter().flatten().collect(), ended)
}
