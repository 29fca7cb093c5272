//! Receipts: what a check on a GPU found, one JSON object per line.

use super::{LibraryError, Manifest, Receipt};
use serde::Deserialize;

/// A line of a file of receipts, written by the check program.
///
/// ```json
/// {"key": "…", "blake3": "…", "device": "NVIDIA H200", "date": "2026-11-21", "worst_error": 0.25}
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct ReceiptLine {
    /// The kernel's key.
    pub(crate) key: String,
    /// The result.
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
}

/// Gives the kernels of a manifest their receipts; the number of kernels that have one now and had none, or another.
///
/// # Errors
///
/// When a line is not a receipt, names a kernel that is not in the manifest, is for another text than the kernel's, or
/// reports an error beyond its bound. Nothing is changed then.
pub(crate) fn apply_receipts(manifest: &mut Manifest, lines: &str) -> Result<usize, LibraryError> {
    let mut result = manifest.clone();
    let numbered = lines.lines().enumerate().filter(|(_, text)| !text.trim().is_empty());
    for (number, text) in numbered {
        let wrong = |reason| LibraryError::Receipt { line: number + 1, reason };
        apply(&mut result, text).map_err(wrong)?;
    }
    let changed = manifest.kernel.iter().zip(&result.kernel).filter(|(old, new)| old.receipt != new.receipt).count();
    *manifest = result;
    Ok(changed)
}

fn apply(manifest: &mut Manifest, text: &str) -> Result<(), String> {
    let ReceiptLine { key, receipt } = serde_json::from_str(text).map_err(|e| format!("not a receipt: {e}"))?;
    let entry = manifest.kernel.iter_mut().find(|e| e.key == key);
    let entry = entry.ok_or_else(|| format!("no kernel has the key {key}; `oplus generate` writes those there are"))?;
    if entry.blake3 != receipt.blake3 {
        return Err(format!("{} is no longer the text that was checked; check it again", entry.symbol));
    }
    if receipt.worst_error.is_nan() || receipt.worst_error > 1.0 {
        return Err(format!("{} is wrong by {} times its bound", entry.symbol, receipt.worst_error));
    }
    entry.receipt = Some(receipt);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::entry;
    use super::*;

    fn line(key: &str, text: &str, error: f64) -> String {
        let hash = blake3::hash(text.as_bytes()).to_hex();
        format!(
            "{{\"key\": \"{key}\", \"blake3\": \"{hash}\", \"device\": \"NVIDIA H200\", \
             \"date\": \"2026-11-21\", \"worst_error\": {error}}}\n"
        )
    }

    #[test]
    fn a_receipt_reaches_its_kernel() {
        let mut manifest = Manifest::new(vec![entry("a", "one"), entry("b", "two")]);
        let lines = line("b", "two", 0.5) + "\n";
        assert_eq!(apply_receipts(&mut manifest, &lines).unwrap(), 1);
        assert_eq!(apply_receipts(&mut manifest, &lines).unwrap(), 0);
        assert_eq!(manifest.kernel[1].receipt.as_ref().unwrap().worst_error, 0.5);
        assert_eq!(manifest.kernel[0].receipt, None);
    }

    #[test]
    fn wrong_receipts_are_refused_and_change_nothing() {
        let mut manifest = Manifest::new(vec![entry("a", "one")]);
        let cases = [
            (line("z", "one", 0.5), "no kernel has the key z"),
            (line("a", "two", 0.5), "check it again"),
            (line("a", "one", 1.5), "wrong by 1.5 times its bound"),
            ("{}".into(), "not a receipt"),
        ];
        for (bad, reason) in cases {
            let error = apply_receipts(&mut manifest, &(line("a", "one", 0.1) + &bad)).unwrap_err().to_string();
            assert!(error.starts_with("line 2") && error.contains(reason), "{error}");
            assert_eq!(manifest.kernel[0].receipt, None);
        }
    }
}
