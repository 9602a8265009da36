//! Checks result files against the published schemas (`docs/schema`), with the
//! part of JSON Schema that they use.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Fails the test unless a document is as its schema says.
#[track_caller]
pub(crate) fn check(document: &Value) {
    let name = document["schema"].as_str().expect("a schema");
    let file = name.trim_start_matches("dat-bench/").replace('/', "-");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/schema/{file}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
    if let Err(wrong) = conforms(document, &schema, &schema, "") {
        panic!("{name}: {wrong}");
    }
}

fn conforms(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#'));
        return conforms(value, target.ok_or(format!("no {name}"))?, root, at);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let all: Vec<_> = choices
            .iter()
            .map(|choice| conforms(value, choice, root, at))
            .collect();
        return match all.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Err(format!("{at}: no choice of {all:?}")),
        };
    }
    if let Some(wanted) = schema.get("const").filter(|&wanted| wanted != value) {
        return Err(format!("{at}: {value} instead of {wanted}"));
    }
    if let Some(wanted) = schema["enum"].as_array().filter(|all| !all.contains(value)) {
        return Err(format!("{at}: {value} is none of {wanted:?}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    if !types.is_empty() && !types.iter().any(|name| has_type(value, name)) {
        return Err(format!("{at}: {value} is no {types:?}"));
    }
    if let (Some(values), Some(items)) = (value.as_array(), schema.get("items")) {
        for (index, value) in values.iter().enumerate() {
            conforms(value, items, root, &format!("{at}[{index}]"))?;
        }
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return Ok(());
    };
    let required = schema["required"].as_array();
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{at}: '{name}' is missing"));
        }
    }
    for (name, value) in fields {
        let at = format!("{at}.{name}");
        match known.get(name) {
            Some(schema) => conforms(value, schema, root, &at)?,
            None => return Err(format!("{at} is not in the schema")),
        }
    }
    Ok(())
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("the schema has the unknown type {other}"),
    }
}
