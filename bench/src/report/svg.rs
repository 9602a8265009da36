//! Results as plots. Made from the JSON file, as the page of `report` is.

use crate::charts::{Source, sections};
use crate::failure::Failure;
use crate::plot::page;
use crate::results::ResultFile;

/// Returns the text of a file.
pub(super) fn document(json: &str) -> Result<String, Failure> {
    let file = ResultFile::parse(json)
        .map_err(|cause| Failure::run(format!("cannot draw the results: {cause}")))?;
    let label = "";
    let sections = sections(&[Source { label, file: &file }]);
    // Plots per case are for the page of `report` if there are many.
    let sections = sections.into_iter().filter(|it| !it.is_folded());
    let panels: Vec<_> = sections.flat_map(|it| it.panels).collect();
    Ok(page(&file.heading(), &panels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_command_device_and_emulation() {
        let json = r#"{"schema": "dat-bench/lat/3", "emulated": true, "device": {"name": "mlx5_0"}, "results": [
            {"bytes": 2, "api": "c", "t_typical": 1.5}, {"bytes": 4, "api": "c", "t_typical": 2.5}]}"#;
        let svg = document(json).unwrap();
        for said in ["dat-bench lat on mlx5_0", "EMULATED NIC", "<polyline"] {
            assert!(svg.contains(said), "{said} in {svg}");
        }
        assert!(document("").is_err());
    }
}
