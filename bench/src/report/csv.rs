//! Results as CSV: a row per case, a column per figure, with units in the names
//! of the columns. Made from the JSON file, so that both have the same figures.

use crate::failure::Failure;
use crate::results::{Figure, ResultFile};

/// Returns the text of a file.
pub(super) fn document(json: &str) -> Result<String, Failure> {
    let file = ResultFile::parse(json)
        .map_err(|cause| Failure::run(format!("cannot make CSV from the results: {cause}")))?;
    let name = |figure: &Figure| match figure.unit.name() {
        "" => figure.name.clone(),
        unit => format!("{}_{}", figure.name, unit.replace('/', "_per_")),
    };
    let mut columns: Vec<String> = Vec::new();
    for figure in file.cases.iter().flat_map(|case| &case.figures) {
        if !columns.contains(&name(figure)) {
            columns.push(name(figure));
        }
    }
    let mut out = format!("case,samples,reliable,{}\n", columns.join(","));
    for case in &file.cases {
        let samples = case
            .samples
            .map_or(String::new(), |count| count.to_string());
        let value = |column: &String| {
            let found = case.figures.iter().find(|it| name(it) == *column);
            found.map_or(String::new(), |figure| figure.value.to_string())
        };
        let values: Vec<_> = columns.iter().map(value).collect();
        // Names of cases have commas, and no quotation marks.
        out += &format!(
            "\"{}\",{samples},{},{}\n",
            case.name,
            case.unreliable.is_empty(),
            values.join(",")
        );
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_row_and_every_figure_a_column() {
        let json = r#"{"schema": "dat-bench/lat/3", "results": [
            {"bytes": 2, "api": "c", "iterations": 9, "t_typical": 1.5, "max": 2.0},
            {"bytes": 4, "api": "c", "iterations": 1000, "t_typical": 2.5, "p99": 3.5, "max": 4,
             "unreliable": [{"reason": "it ran 29 % of the time"}]}]}"#;
        assert_eq!(
            document(json).unwrap(),
            "case,samples,reliable,p50_us,max_us,p99_us\n\
             \"2 bytes, c\",9,true,1.5,2,\n\
             \"4 bytes, c\",1000,false,2.5,4,3.5\n"
        );
        assert!(document("").is_err());
    }
}
