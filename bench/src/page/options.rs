//! Options and help of `dat-bench report`.

use std::path::PathBuf;

use clap::Args;

pub(crate) const ABOUT: &str = "\
Make one HTML page from result files that --json has written.

The page shows latency over message size, over load and over the time of the run,
percentiles on HdrHistogram's axis, bandwidth and message rate, wait policies,
processor cost, endpoints, and perftest beside dat-bench, whichever of them the
files have; then all figures, and the conditions of host, device and options. Several files are shown in the same
plots. Results that are unreliable and emulated NICs are marked.

The page is one file: it needs no network and no script, follows the reader's
choice of dark or light, and fits phones and paper.";

pub(crate) const EXAMPLES: &str = "\
Examples:
  dat-bench report lat.json                          writes report.html
  dat-bench report before.json after.json -o out.html
  dat-bench report *.json -o -                       to standard output
  dat-bench report wake.json -o .                    the page, and its plots as SVG

Exit status: 0 good, 1 usage (also a file that cannot be used), 2 the page cannot be written.";

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result files of lat, bw, rate, wake, cost, scale and compare
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The page; '-' is standard output. An existing folder gets report.html, and the plots as SVG
    #[arg(short, long, value_name = "PATH", default_value = "report.html")]
    pub(crate) out: PathBuf,
}
