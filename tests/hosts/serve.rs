//! The passive side: sends every message back, and reports on each connection
//! when it has ended.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use dat_api::safe::ConnectionRequest;
use dat_api::types::{ConnectionKind, EventData};

use crate::flow::{Done, Flow, TICK};
use crate::{Common, Outcome, next, open};

#[derive(Args)]
pub(crate) struct Serve {
    /// End when this many clients have sent their last message and disconnected
    #[arg(short = 'n', long, default_value_t = 1)]
    clients: usize,
    /// When to answer the first request
    #[arg(long, value_enum, default_value_t = Answer::AtOnce)]
    answer: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Answer {
    /// At once
    AtOnce,
    /// Never
    Never,
    /// After five seconds, in which the client is expected to have lost power
    Late,
}

/// A connection of this side.
struct Served {
    flow: Flow,
    number: usize,
    /// Messages to send back that wait for a free buffer.
    owed: u64,
    up: bool,
    /// How and when the connection ended.
    ended: Option<(ConnectionKind, Instant)>,
}

const LATE: Duration = Duration::from_secs(5);

impl Serve {
    pub(crate) fn run(&self, common: &Common) -> Outcome<()> {
        let (adapter, events) = open(common)?;
        let zone = adapter.create_zone()?;
        let _listening = adapter.listen(common.port, &events)?;
        println!("listening on {}", common.port);
        let mut served: Vec<Served> = Vec::new();
        let mut unanswered = Vec::new();
        let (mut came, mut gone) = (0, 0);
        while gone < self.clients {
            let event = next(&events, TICK)?;
            if let Some(event) = event {
                if let Some(request) = ConnectionRequest::from_event(&event) {
                    println!("request {came}");
                    if came == 0 && self.answer == Answer::Never {
                        unanswered.push(request);
                        came += 1;
                        continue;
                    }
                    let late = came == 0 && self.answer == Answer::Late;
                    if late {
                        std::thread::sleep(LATE);
                    }
                    let mut flow = Flow::new(&zone, &events, common.length())?;
                    let region = flow.open_region();
                    match request.accept(&mut flow.endpoint, &region) {
                        Ok(()) => println!("accepted {came}"),
                        // The kernel may report at once that the route is gone.
                        Err(error) if late => {
                            println!("not accepted {came}: {error}");
                            came += 1;
                            continue;
                        }
                        Err(error) => return Err(error.into()),
                    }
                    served.push(Served {
                        flow,
                        number: came,
                        owed: 0,
                        up: false,
                        ended: None,
                    });
                    came += 1;
                } else if let EventData::Dto { ep, .. } | EventData::Connection { ep, .. } =
                    event.data
                {
                    let one = served.iter_mut().find(|one| one.flow.is(ep));
                    one.ok_or("an event of no endpoint of this program")?
                        .take(event.data)?;
                } else {
                    return Err(format!("unexpected: {event:?}").into());
                }
            }
            for one in &mut served {
                one.tick(common)?;
            }
            served.retain(|one| {
                let over = one.ended.is_some() && one.flow.is_accounted();
                if over {
                    println!("connection {}: {}", one.number, one.flow.account());
                    gone += usize::from(one.flow.is_last);
                }
                !over
            });
        }
        Ok(())
    }
}

impl Served {
    fn take(&mut self, event: EventData) -> Outcome<()> {
        match event {
            EventData::Connection {
                kind: ConnectionKind::Established,
                ..
            } => {
                println!("established {}", self.number);
                self.up = true;
                self.flow.alive = Instant::now();
                self.send_back()
            }
            EventData::Connection { kind, .. } => {
                if let Some((before, _)) = self.ended {
                    return Err(format!(
                        "a second end of the same connection: first {before:?}, now {kind:?}"
                    )
                    .into());
                }
                let seconds = self.flow.alive.elapsed().as_secs_f32();
                println!(
                    "connection {}: {kind:?}, {seconds:.1} s after the last progress, {} messages",
                    self.number, self.flow.received
                );
                self.ended = Some((kind, Instant::now()));
                Ok(())
            }
            EventData::Dto {
                cookie,
                status,
                length,
                ..
            } => {
                if let Done::Message(_) = self.flow.complete(cookie, status, length)? {
                    self.owed += 1;
                }
                self.send_back()
            }
            other => Err(format!("unexpected: {other:?}").into()),
        }
    }

    fn send_back(&mut self) -> Outcome<()> {
        while self.up && self.ended.is_none() && self.owed > 0 && self.flow.can_send() {
            self.flow.send()?;
            self.owed -= 1;
        }
        Ok(())
    }

    /// Probes an idle connection, and checks whether an event is overdue.
    fn tick(&mut self, common: &Common) -> Outcome<()> {
        let silent = self.flow.alive.elapsed();
        match self.ended {
            None if self.up && silent > TICK => self.flow.probe()?,
            Some((_, when)) if when.elapsed() > common.limit() => {
                return Err(
                    format!("transfers without completion: {}", self.flow.account()).into(),
                );
            }
            _ => {}
        }
        if self.ended.is_none() && silent > common.limit() {
            return Err(format!(
                "connection {}: no event for {silent:?}: {}",
                self.number,
                self.flow.account()
            )
            .into());
        }
        Ok(())
    }
}
