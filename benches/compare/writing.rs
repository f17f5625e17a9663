//! Renews the page and the picture in docs.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

use crate::picture;
use crate::report::{HEAD, Report, is_text};
use crate::support::{ServerKind, server_kind};

/// The default server has the picture; each of the others has a page of its own.
pub fn write(title: &str, report: &Report) -> io::Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    fs::create_dir_all(&docs)?;
    let (page, command) = match server_kind() {
        ServerKind::Redis7 => ("bench.md", "make bench WRITE=1"),
        ServerKind::Redis8 => ("bench-redis8.md", "make bench SERVER=redis8 WRITE=1"),
        ServerKind::Valkey8 => ("bench-valkey8.md", "make bench SERVER=valkey8 WRITE=1"),
        ServerKind::Valkey9 => ("bench-valkey9.md", "make bench SERVER=valkey9 WRITE=1"),
    };
    let has_picture = server_kind() == ServerKind::Redis7;
    fs::write(docs.join(page), self::page(title, command, has_picture, report))?;
    if has_picture {
        fs::write(docs.join("bench.svg"), picture::draw(title, report))?;
    }
    eprintln!("written: docs/{page}{}", if has_picture { ", docs/bench.svg" } else { "" });
    Ok(())
}

fn page(title: &str, command: &str, has_picture: bool, report: &Report) -> String {
    let mut page = format!(
        "# PRLOCK beside what one would use instead\n\n\
         `{command}` wrote this page. {title}.\n\n"
    );
    if has_picture {
        page += "![The cycle, hand-over, LIST and growth in bars and lines; all numbers are in the tables below]\
                 (bench.svg)\n\n";
    }
    page += "Times are processor time of the server's main thread, unless they are called the client's. Contenders take \
             turns round by round; a ratio is the median of the ratios within a round. What PRLOCK is compared with runs \
             in a server without the module.\n";
    let mut part = "";
    for row in &report.rows {
        if row.part != part {
            part = row.part;
            let rule: Vec<&str> = (0..HEAD.len()).map(|at| if is_text(at) { "---" } else { "--:" }).collect();
            write!(page, "\n## {part}\n\n| {} |\n|{}|\n", HEAD.join(" | "), rule.join("|")).expect("write to a string");
        }
        writeln!(page, "| {} |", row.cells().join(" | ")).expect("write to a string");
    }
    page + &format!("\n{}.\n", report.summary())
}
