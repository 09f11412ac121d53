//! The YAML as written: a tree of nodes, each with the line and column it came from.
//!
//! The tree is built from the parser's events and not by serde, for three
//! reasons: a scalar keeps its spelling (`NO`, `1.10`, `0644`), every node
//! keeps its place, and a reader that walks a tree can report all faults of a
//! file, where a deserializer stops at the first.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{
    Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag,
};

use super::fault::{Fault, Place, shown};

/// Deepest nesting of lists and mappings.
const MAX_DEPTH: usize = 24;
/// Most nodes of a file, those that aliases repeat included.
const MAX_NODES: usize = 100_000;
/// Most lines with a tab that are named one by one.
const MAX_TAB_FAULTS: usize = 20;

/// One value of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Where it starts.
    pub(super) at: Place,
    /// What it is.
    pub(super) value: Value,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A scalar; its type is for the reader to say.
    Text {
        /// The text after YAML's own escapes.
        text: String,
        /// Whether it was written without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order written, merge keys resolved.
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The key as written.
    pub(super) key: String,
    /// Where the key starts.
    pub(super) at: Place,
    /// Its value.
    pub(super) node: Node,
}

impl Node {
    /// Whether there is no value: nothing, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Text { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What a message calls it.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text { .. } if self.is_null() => "nothing",
            Value::Text { .. } => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Itself and all nodes below it.
    fn size(&self) -> usize {
        match &self.value {
            Value::Text { .. } => 1,
            Value::List(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Value::Map(entries) => 1 + entries.iter().map(|e| 1 + e.node.size()).sum::<usize>(),
        }
    }
}

/// Reads the one document of `text`; `None` is a file without one.
///
/// What is no YAML gives one fault at its place; doubled keys and tabs give a
/// fault each beside the tree.
pub(super) fn read(text: &str, faults: &mut Vec<Fault>) -> Option<Node> {
    let mut options = Options::default();
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    options.emit_comments = false;
    let mut composer = Composer {
        parser: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        nodes: 0,
        inner_lines: Vec::new(),
        faults,
    };
    let node = composer.document();
    let tabs = tabs(text, &composer.inner_lines);
    let fault = node.as_ref().err();
    // The parser's own complaint about a tab is left out for the one in plainer words.
    if let Some(fault) = fault
        && (tabs.is_empty() || !fault.message.contains("tab"))
        && tabs.iter().all(|tab| tab.line != fault.line)
    {
        faults.push(fault.clone());
    }
    faults.extend(tabs);
    node.unwrap_or_default()
}

/// A fault for each line that is indented with a tab, unless it lies inside a text of several lines.
fn tabs(text: &str, inner_lines: &[(usize, usize)]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        let rest = line.get(indent..).unwrap_or_default();
        let Some(tab) = line.get(..indent).and_then(|indent| indent.find('\t')) else {
            continue;
        };
        // They stand in the file's order and do not overlap.
        let before = inner_lines.partition_point(|(first, _)| *first < number);
        let inside = before
            .checked_sub(1)
            .and_then(|last| inner_lines.get(last))
            .is_some_and(|(_, last)| number <= *last);
        if rest.trim_end().is_empty() || rest.starts_with('#') || inside {
            continue;
        }
        let place = Place {
            line: number,
            column: tab + 1,
        };
        if faults.len() == MAX_TAB_FAULTS {
            faults.push(Fault::at(
                place,
                "a tab in the indentation, and maybe more below",
            ));
            break;
        }
        faults.push(Fault::at(
            place,
            "a tab in the indentation: indent with spaces",
        ));
    }
    faults
}

/// Turns the parser's events into nodes.
struct Composer<'t, 'f> {
    parser: Parser<'t, StrInput<'t>>,
    /// Finished anchored nodes, by the parser's number.
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// First and last line of each quoted or block text of several lines.
    inner_lines: Vec<(usize, usize)>,
    faults: &'f mut Vec<Fault>,
}

impl<'t> Composer<'t, '_> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Fault> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => Err(scan_fault(&error)),
        }
    }

    /// The first document; a second one is a fault.
    fn document(&mut self) -> Result<Option<Node>, Fault> {
        let mut found = None;
        let mut documents = 0;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        return Err(Fault::at(
                            place(&span),
                            "a second document: a configuration is one document, without `---`",
                        ));
                    }
                }
                event => found = Some(self.node(event, &span, 0)?),
            }
        }
        Ok(found)
    }

    fn node(&mut self, event: Event<'t>, span: &Span, depth: usize) -> Result<Node, Fault> {
        let at = place(span);
        self.grow(1, at)?;
        if depth > 2 * MAX_DEPTH {
            return Err(Fault::at(at, "nested too deeply"));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let as_text = scalar_tag(tag.as_deref(), at)?;
                if style != ScalarStyle::Plain {
                    self.inner_lines.push((span.start.line(), span.end.line()));
                }
                let plain = style == ScalarStyle::Plain && !as_text;
                // The parser gives `~` for nothing at all, which has no extent in the file.
                let nothing = plain && span.start.index() == span.end.index();
                let text = if nothing {
                    String::new()
                } else {
                    text.into_owned()
                };
                (anchor, Value::Text { text, plain })
            }
            Event::SequenceStart(_, anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", at)?;
                (anchor, Value::List(self.list(depth)?))
            }
            Event::MappingStart(_, anchor, tag) => {
                collection_tag(tag.as_deref(), "map", at)?;
                (anchor, Value::Map(self.map(depth)?))
            }
            Event::Alias(anchor) => return self.alias(anchor, at),
            _ => return Err(Fault::at(at, "a value was expected here")),
        };
        let node = Node { at, value };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, at: Place) -> Result<Node, Fault> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(Fault::at(at, "an alias inside the value it stands for"));
        };
        self.grow(node.size(), at)?;
        Ok(node)
    }

    fn grow(&mut self, count: usize, at: Place) -> Result<(), Fault> {
        self.nodes += count;
        if self.nodes > MAX_NODES {
            return Err(Fault::at(
                at,
                &format!(
                    "more than {MAX_NODES} keys and values up to here; an alias counts with all that it repeats"
                ),
            ));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.node(event, &span, depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Fault> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: HashMap<String, Place> = HashMap::new();
        let mut merged: Option<(Place, Vec<Entry>)> = None;
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let key = self.node(event, &span, depth + 1)?;
            let Some((event, span)) = self.next()? else {
                break;
            };
            let node = self.node(event, &span, depth + 1)?;
            let at = key.at;
            let Value::Text { text: key, plain } = key.value else {
                self.fault(at, "a key must be text, not a list or a mapping");
                continue;
            };
            if plain && key == "<<" {
                match merged {
                    Some((first, _)) => self.doubled(at, "<<", first),
                    None => merged = Some((at, self.merge(node, at))),
                }
                continue;
            }
            if let Some(first) = seen.get(&key) {
                self.doubled(at, &key, *first);
            } else {
                seen.insert(key.clone(), at);
                entries.push(Entry { key, at, node });
            }
        }
        for entry in merged.into_iter().flat_map(|(_, merged)| merged) {
            if !seen.contains_key(&entry.key) {
                seen.insert(entry.key.clone(), entry.at);
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    /// What a merge key brings: one mapping, or several of which the first wins.
    fn merge(&mut self, node: Node, at: Place) -> Vec<Entry> {
        let items = match node.value {
            Value::List(items) => items,
            _ => vec![node],
        };
        let mut merged = Vec::new();
        for item in items {
            if let Value::Map(entries) = item.value {
                merged.extend(entries);
            } else {
                self.fault(at, "`<<` (merge key) takes mappings only, such as `*base`");
            }
        }
        merged
    }

    fn doubled(&mut self, at: Place, key: &str, first: Place) {
        let key = shown(key);
        let message = format!("key {key} is already on line {}", first.line);
        self.fault(at, &message);
    }

    fn fault(&mut self, at: Place, message: &str) {
        self.faults.push(Fault::at(at, message));
    }
}

fn place(span: &Span) -> Place {
    Place {
        line: span.start.line(),
        column: span.start.col() + 1,
    }
}

fn scan_fault(error: &ScanError) -> Fault {
    let marker = error.marker();
    let place = Place {
        line: marker.line(),
        column: marker.col() + 1,
    };
    Fault::at(place, &format!("not YAML: {}", error.kind()))
}

/// Whether a scalar's tag makes it text; every other tag is a fault, since it asks for a type of YAML's own.
fn scalar_tag(tag: Option<&Tag>, at: Place) -> Result<bool, Fault> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.core_suffix() == Some("str") => Ok(true),
        Some(tag) => Err(tag_fault(tag, at)),
    }
}

fn collection_tag(tag: Option<&Tag>, expected: &str, at: Place) -> Result<(), Fault> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(expected) => Err(tag_fault(tag, at)),
        _ => Ok(()),
    }
}

fn tag_fault(tag: &Tag, at: Place) -> Fault {
    let tag = shown(&tag.original());
    Fault::at(at, &format!("tag {tag} has no meaning here: leave it out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> (Option<Node>, Vec<Fault>) {
        let mut faults = Vec::new();
        let node = read(text, &mut faults);
        (node, faults)
    }

    fn only_fault(text: &str) -> (usize, usize, String) {
        let (_, faults) = read_all(text);
        assert_eq!(faults.len(), 1, "{faults:?}");
        let fault = faults.into_iter().next().unwrap();
        (fault.line, fault.column, fault.message)
    }

    fn plain(text: &str) -> String {
        let (node, faults) = read_all(text);
        assert_eq!(faults, []);
        flat(&node.unwrap())
    }

    fn flat(node: &Node) -> String {
        match &node.value {
            Value::Text { text, plain: true } => text.clone(),
            Value::Text { text, plain: false } => format!("{text:?}"),
            Value::List(items) => {
                format!("[{}]", items.iter().map(flat).collect::<Vec<_>>().join(","))
            }
            Value::Map(entries) => format!(
                "{{{}}}",
                entries
                    .iter()
                    .map(|e| format!("{}:{}", e.key, flat(&e.node)))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
        }
    }

    #[test]
    fn scalars_keep_their_spelling() {
        assert_eq!(
            plain("a: NO\nb: 1.10\nc: 0644\nd: 12:30\ne:\nf: ~\ng: \"x\\ty\"\nh: !!str 12\n"),
            "{a:NO,b:1.10,c:0644,d:12:30,e:,f:~,g:\"x\\ty\",h:\"12\"}"
        );
        assert_eq!(plain("no: 1\n\"on\": 2\n"), "{no:1,on:2}");
        let (node, _) = read_all("a:\n  b:\n\n\nc: 1\n");
        let Value::Map(entries) = node.unwrap().value else {
            panic!()
        };
        let Value::Map(inner) = &entries[0].node.value else {
            panic!()
        };
        assert!(inner[0].node.is_null());
        assert_eq!(inner[0].node.at.line, 2);
    }

    #[test]
    fn places_count_from_one() {
        let (node, _) = read_all("a:\n  - ä: x\n");
        let Value::Map(entries) = node.unwrap().value else {
            panic!()
        };
        let Value::List(items) = &entries[0].node.value else {
            panic!()
        };
        let Value::Map(inner) = &items[0].value else {
            panic!()
        };
        assert_eq!(inner[0].at, Place { line: 2, column: 5 });
        assert_eq!(inner[0].node.at, Place { line: 2, column: 8 });
    }

    #[test]
    fn files_without_a_document_are_nothing() {
        for text in ["", "\n\n", "# only a comment\n", "---\n", "\u{feff}"] {
            let (node, faults) = read_all(text);
            assert_eq!(faults, [], "{text:?}");
            assert!(node.is_none_or(|node| node.is_null()), "{text:?}");
        }
        assert_eq!(plain("\u{feff}a: 1\r\nb: 2\r\n"), "{a:1,b:2}");
    }

    #[test]
    fn merge_keys_bring_what_a_mapping_lacks() {
        assert_eq!(
            plain("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\n"),
            "{x:{a:1,b:2},y:{b:3,a:1}}"
        );
        assert_eq!(
            plain("x: &x {a: 1}\nz: &z {a: 9, c: 2}\ny: {<<: [*x, *z]}\n"),
            "{x:{a:1},z:{a:9,c:2},y:{a:1,c:2}}"
        );
        assert_eq!(plain("y: {\"<<\": 1}\n"), "{y:{<<:1}}");
        let (line, _, message) = only_fault("y:\n  <<: 5\n");
        assert_eq!(line, 2);
        assert!(message.contains("merge key"), "{message}");
    }

    #[test]
    fn doubled_keys_are_named_with_both_lines() {
        let (_, faults) = read_all("a: 1\nb: 2\na: 3\nb: 4\n");
        let texts: Vec<_> = faults
            .iter()
            .map(|f| (f.line, f.message.as_str()))
            .collect();
        assert_eq!(
            texts,
            [
                (3, "key \"a\" is already on line 1"),
                (4, "key \"b\" is already on line 2")
            ]
        );
    }

    #[test]
    fn tabs_in_the_indentation_are_faults_and_tabs_in_texts_are_not() {
        assert_eq!(
            only_fault("servers:\n  - name: h\n\ttransport: stdio\n"),
            (3, 1, "a tab in the indentation: indent with spaces".into())
        );
        assert_eq!(
            only_fault("{\n \t\"a\": 1}\n"),
            (2, 2, "a tab in the indentation: indent with spaces".into())
        );
        assert_eq!(plain("a: |\n  x\n  \ty\n"), "{a:\"x\\n\\ty\\n\"}");
        assert_eq!(plain("a: 1\n\t\n\t# note\nb: 2\n"), "{a:1,b:2}");
    }

    #[test]
    fn what_is_no_yaml_has_a_place() {
        for (text, line) in [
            ("servers: [\n  - name: h\n", 2),
            ("a: 1\nb: \"open\n", 2),
            ("a: *gone\n", 1),
            ("a: 1\n---\nb: 2\n", 2),
            ("a: &a [*a]\n", 1),
            ("a: 1\nb: !include x\n", 2),
            ("? [1]\n: 2\n", 1),
        ] {
            let (found, column, message) = only_fault(text);
            assert!(column > 0);
            assert_eq!(found, line, "{text:?}: {message}");
        }
    }

    #[test]
    fn aliases_that_multiply_are_stopped() {
        let mut text = "a0: &a0 [1,2,3,4,5,6,7,8,9]\n".to_owned();
        for level in 1..9 {
            let before = format!("*a{}", level - 1);
            let list = vec![before; 9].join(",");
            text.extend([format!("a{level}: &a{level} [{list}]\n")]);
        }
        let (_, _, message) = only_fault(&text);
        assert!(
            message.contains("more than 100000 keys and values"),
            "{message}"
        );
        let deep = format!("a: {}{}", "[".repeat(300), "]".repeat(300));
        assert_eq!(read_all(&deep).1.len(), 1);
    }
}
