//! Results as CSV: a row per case, a column for each value that distinguishes cases and for each
//! figure, with units in the names of the columns. Made from the JSON file, so that both have the same figures.

use crate::failure::Failure;
use crate::results::{Figure, Key, ResultFile};

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
    let mut keys: Vec<&'static str> = Vec::new();
    for key in file.cases.iter().flat_map(|case| &case.keys) {
        if !keys.contains(&key.name) {
            keys.push(key.name);
        }
    }
    let names = keys.iter().map(|&key| match key {
        "size" => "size_bytes",
        "rate" => "rate_per_s",
        other => other,
    });
    let names: Vec<&str> = names.chain(["samples", "reliable"]).collect();
    let mut out = format!("{},{}\n", names.join(","), columns.join(","));
    for case in &file.cases {
        let samples = case
            .samples
            .map_or(String::new(), |count| count.to_string());
        let value = |column: &String| {
            let found = case.figures.iter().find(|it| name(it) == *column);
            found.map_or(String::new(), |figure| figure.value.to_string())
        };
        let values: Vec<_> = columns.iter().map(value).collect();
        let keys: Vec<_> = keys.iter().map(|name| text(case.key(name))).collect();
        out += &format!(
            "{},{samples},{},{}\n",
            keys.join(","),
            case.unreliable.is_empty(),
            values.join(",")
        );
    }
    Ok(out)
}

/// Returns the cell of a value that distinguishes a case.
fn text(key: Option<&Key>) -> String {
    match key {
        None => String::new(),
        Some(Key {
            number: Some(number),
            ..
        }) => number.to_string(),
        // A closed loop has no rate.
        Some(key) if key.name == "rate" => String::new(),
        Some(key) if key.text.contains([',', '"', '\n']) => {
            format!("\"{}\"", key.text.replace('"', "\"\""))
        }
        Some(key) => key.text.clone(),
    }
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
            "size_bytes,api,samples,reliable,p50_us,max_us,p99_us\n\
             2,c,9,true,1.5,2,\n\
             4,c,1000,false,2.5,4,3.5\n"
        );
        assert!(document("").is_err());
        let json = r#"{"schema": "dat-bench/cost/2", "results": [
            {"operation": "post, a \"list\"", "variant": "c", "nanoseconds": {"median": 9}}]}"#;
        assert_eq!(
            document(json).unwrap(),
            "operation,variant,samples,reliable,time_ns\n\"post, a \"\"list\"\"\",c,,true,9\n"
        );
    }
}
