//! The text a client is given once: what ptc is for and how to use it.

use std::fmt::Write as _;

use super::Face;
use crate::config::{EngineName, ExposedTool};
use ptc_protocol::run::Confinement;

/// Longest text, in characters; the first 512 are complete by themselves.
pub(super) const MAX_INSTRUCTIONS: usize = 2048;
/// Longest text together with the tools' definitions, in characters: under 700 tokens of four.
pub(super) const MAX_TOGETHER: usize = 4 * 700 - 1;
/// Room for the line that counts the servers left out.
const COUNT_LINE: usize = 24;

/// The instructions for one configuration; the same for clients of every revision.
pub(super) fn instructions(face: &Face) -> String {
    let offers = |tool| face.expose.contains(&tool);
    if face.expose.is_empty() {
        return "ptc offers no tool in this configuration: its key tools.expose is an empty list."
            .to_owned();
    }
    if !offers(ExposedTool::ExecuteProgram) {
        return with_servers(
            "Shows the tools that a Python program of ptc could call. Running programs is turned off \
             in this configuration: tools.expose does not name execute_program.",
            face,
        );
    }
    // The version is CPython's.
    let python = face.python.as_deref();
    let python = python.filter(|_| face.engines.default == EngineName::Cpython);
    let python = python.unwrap_or_default();
    let mut text = format!("Runs Python {python} programs").replace("  ", " ");
    text.push_str(
        " that call the tools of the user's MCP servers. Use execute_program for three or more \
         calls, loops or filtering: only what it prints comes back, not tool results. ",
    );
    if offers(ExposedTool::ListCallableTools) && offers(ExposedTool::InspectTool) {
        text.push_str("First list_callable_tools, then inspect_tool, then a program with ");
    } else {
        text.push_str("In a program, await list_callable_tools() and inspect_tool(tool_name=...) tell what there is; write ");
    }
    text.push_str("`await mcp__SERVER__TOOL(name=value)`.");
    text.push_str(match face.confinement {
        Some(Confinement::None) => "\nWARNING: programs run UNCONFINED (execution.sandbox: none).",
        Some(Confinement::Landlock) => {
            "\nConfined (landlock): no network, processes or files but scratch; programs can learn whether a path exists."
        }
        Some(_) => "\nPrograms are confined: no network, processes or files but their scratch folder.",
        None => "\nPrograms are refused on this machine now; execute_program says why.",
    });
    with_servers(&text, face)
}

/// Adds the servers, and what the operator says they are for, as far as there is room.
fn with_servers(text: &str, face: &Face) -> String {
    let mut text = text.to_owned();
    let purposes = &face.purposes;
    let definitions = super::tools::characters(face);
    let limit = MAX_INSTRUCTIONS
        .min(MAX_TOGETHER.saturating_sub(definitions))
        .saturating_sub(COUNT_LINE);
    if !purposes.is_empty() {
        text.push_str("\nServers:");
    }
    let mut length = text.chars().count();
    for (at, (name, purpose)) in purposes.iter().enumerate() {
        let purpose: Vec<&str> = purpose.split_whitespace().collect();
        let line = if purpose.is_empty() {
            format!("\n- {name}")
        } else {
            format!("\n- {name}: {}", purpose.join(" "))
        };
        length += line.chars().count();
        if length > limit {
            let _ = write!(text, "\n- and {} more", purposes.len() - at);
            break;
        }
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EnginesConfig;

    #[test]
    fn the_first_512_characters_stand_alone_and_the_whole_is_bounded() {
        let purposes = (0..200)
            .map(|n| (format!("server{n}"), "does things ".repeat(3)))
            .collect();
        let face = Face {
            purposes,
            confinement: Some(Confinement::Landlock),
            ..Face::default()
        };
        let text = instructions(&face);
        assert!(
            text.chars().count() <= MAX_INSTRUCTIONS,
            "{}",
            text.chars().count()
        );
        assert!(text.contains("more"));
        let first = text.split('\n').next().unwrap();
        assert!(first.chars().count() <= 512, "{}", first.chars().count());
        assert!(first.ends_with('.'));
    }

    #[test]
    fn instructions_and_definitions_stay_under_700_tokens_whatever_the_servers_are_for() {
        use ExposedTool::{ExecuteProgram, InspectTool, ListCallableTools};
        let purposes: Vec<_> = (0..40)
            .map(|n| (format!("server{n}"), "does\n things ".repeat(5)))
            .collect();
        for expose in [
            vec![ExecuteProgram, InspectTool, ListCallableTools],
            vec![ExecuteProgram],
            vec![InspectTool],
            vec![],
        ] {
            for (confinement, offered) in [
                (None, 1),
                (Some(Confinement::None), 1),
                (Some(Confinement::Landlock), 1),
                (Some(Confinement::Landlock), 2),
            ] {
                let engines = EnginesConfig {
                    offered: [EngineName::Cpython, EngineName::Monty][..offered].to_vec(),
                    ..EnginesConfig::default()
                };
                let face = Face {
                    expose: expose.clone(),
                    purposes: purposes.clone(),
                    engines,
                    confinement,
                    ..Face::default()
                };
                let text = instructions(&face);
                let together = text.chars().count() + super::super::tools::characters(&face);
                assert!(together / 4 < 700, "{expose:?}: {together} characters");
                assert!(text.chars().count() <= MAX_INSTRUCTIONS);
                assert_eq!(text.contains("does things"), !expose.is_empty(), "{text}");
            }
        }
    }

    /// Where the engines are to be chosen from, too, a dozen servers are named.
    #[test]
    fn there_are_200_characters_for_servers_in_every_configuration_with_the_three_tools() {
        for confinement in [
            None,
            Some(Confinement::None),
            Some(Confinement::Full),
            Some(Confinement::Landlock),
        ] {
            let engines = EnginesConfig {
                offered: vec![EngineName::Cpython, EngineName::Monty],
                ..EnginesConfig::default()
            };
            let face = Face {
                python: Some("3.12.11".to_owned()),
                // Each line has ten characters.
                purposes: (10..90)
                    .map(|n| (format!("serve{n}"), String::new()))
                    .collect(),
                engines,
                confinement,
                ..Face::default()
            };
            let text = instructions(&face);
            let named = text.matches("\n- serve").count();
            assert!(named >= 20, "{named} are named: {text}");
            assert!(
                text.ends_with(&format!("\n- and {} more", 80 - named)),
                "{text}"
            );
        }
    }

    #[test]
    fn every_server_is_named_and_the_version_of_python_too() {
        let face = Face {
            python: Some("3.12".to_owned()),
            purposes: vec![
                ("db".to_owned(), String::new()),
                ("wiki".to_owned(), "pages of the team".to_owned()),
            ],
            ..Face::default()
        };
        let text = instructions(&face);
        assert!(
            text.starts_with("Runs Python 3.12 programs that call the tools"),
            "{text}"
        );
        assert!(
            text.ends_with("\nServers:\n- db\n- wiki: pages of the team"),
            "{text}"
        );
        assert!(instructions(&Face::default()).starts_with("Runs Python programs that call"));
    }

    #[test]
    fn what_is_not_offered_is_not_advertised() {
        use ExposedTool::{ExecuteProgram, InspectTool, ListCallableTools};
        let text = |expose: &[ExposedTool]| {
            instructions(&Face {
                expose: expose.to_vec(),
                ..Face::default()
            })
        };
        assert_eq!(
            text(&[]),
            "ptc offers no tool in this configuration: its key tools.expose is an empty list."
        );
        let without = text(&[InspectTool, ListCallableTools]);
        assert!(!without.contains("Use execute_program"), "{without}");
        assert!(without.contains("turned off"), "{without}");
        let alone = text(&[ExecuteProgram]);
        assert!(!alone.contains("First list_callable_tools"), "{alone}");
        assert!(alone.contains("await list_callable_tools()"), "{alone}");
    }

    #[test]
    fn programs_that_are_not_confined_are_announced() {
        let face = Face {
            confinement: Some(Confinement::None),
            ..Face::default()
        };
        assert!(instructions(&face).contains("UNCONFINED"));
    }
}
