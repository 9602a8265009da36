//! The plot: per rate, the distribution of latencies of each policy; and CPU
//! time over the rate.

use dat_api::safe::WaitPolicy;

use super::outcome::Outcome;
use super::report::Conditions;
use crate::cli::Rate;
use crate::failure::Failure;
use crate::plot::{Line, Panel, page};

/// Returns the plot, as SVG.
pub(super) fn svg(conditions: &Conditions, outcomes: &[Outcome]) -> Result<String, Failure> {
    let (mut rates, mut policies): (Vec<Rate>, Vec<WaitPolicy>) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        if !rates.contains(&outcome.rate) {
            rates.push(outcome.rate);
        }
        if !policies.contains(&outcome.policy) {
            policies.push(outcome.policy);
        }
    }
    let mut panels: Vec<Panel> = rates
        .iter()
        .map(|&rate| Panel {
            title: match rate {
                Rate::PerSecond(rate) => format!("latency at {rate} messages per second"),
                Rate::Closed => "latency, one message at a time".to_owned(),
            },
            x: "1 / (1 - quantile)",
            y: "microseconds",
            lines: outcomes
                .iter()
                .filter(|it| it.rate == rate)
                .map(distribution)
                .collect(),
        })
        .collect();
    let paced = |outcome: &&Outcome| matches!(outcome.rate, Rate::PerSecond(_));
    if outcomes.iter().filter(paced).count() > policies.len() {
        panels.push(Panel {
            title: "the waiter's CPU time".to_owned(),
            x: "messages per second",
            y: "% of one processor",
            lines: policies
                .iter()
                .map(|&policy| Line {
                    name: policy.to_string(),
                    points: outcomes
                        .iter()
                        .filter(|it| it.policy == policy)
                        .filter_map(|it| match it.rate {
                            Rate::PerSecond(rate) => Some((rate, it.share() * 100.0)),
                            Rate::Closed => None,
                        })
                        .collect(),
                })
                .collect(),
        });
    }
    page(
        &format!("dat-bench wake: {}", conditions.device.emulation_note()),
        &panels,
    )
}

/// Returns the quantiles of a case, up to the last that is not the maximum.
fn distribution(outcome: &Outcome) -> Line {
    let most = (outcome.times.samples.count() as f64).max(2.0);
    let steps = 60;
    Line {
        name: outcome.policy.to_string(),
        points: (0..=steps)
            .map(|step| {
                let odds = most.powf(f64::from(step) / f64::from(steps));
                (odds, outcome.times.samples.quantile(1.0 - 1.0 / odds))
            })
            .collect(),
    }
}
