//! Turns the text of a JSON number into what Cedar can compare, digit by digit.

/// Digits behind the point that Cedar's decimals have.
const PLACES: usize = 4;
/// Most digits before the point that are looked at; a 64-bit number has 19.
const MAX_DIGITS: usize = 19;

/// A number as Cedar sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// A whole number of 64 bits.
    Long(i64),
    /// A number with four places.
    Decimal(String),
    /// A number that neither holds, as its text.
    Text,
}

/// Reads the text of a JSON number; with `decimal` whole numbers become decimals, too.
///
/// The text is read by its digits and not as a float, so that no digit is made up. What has more than four places is
/// rounded to the nearest, halves away from zero.
pub(crate) fn number(text: &str, decimal: bool) -> Number {
    let Some((negative, whole, fraction)) = digits(text) else {
        return Number::Text;
    };
    let has_fraction = fraction.bytes().any(|digit| digit != b'0');
    let sign = if negative { "-" } else { "" };
    if !has_fraction && !decimal {
        return format!("{sign}{whole}")
            .parse()
            .map_or(Number::Text, Number::Long);
    }
    // All digits as one whole number of ten-thousandths.
    let mut kept = fraction.clone();
    kept.truncate(PLACES);
    while kept.len() < PLACES {
        kept.push('0');
    }
    let up = fraction
        .as_bytes()
        .get(PLACES)
        .is_some_and(|digit| *digit >= b'5');
    let Ok(scaled) = format!("{whole}{kept}").parse::<i64>() else {
        return Number::Text;
    };
    let Some(scaled) = scaled.checked_add(i64::from(up)) else {
        return Number::Text;
    };
    let (whole, places) = (scaled / 10_000, scaled % 10_000);
    let sign = if scaled == 0 { "" } else { sign };
    Number::Decimal(format!("{sign}{whole}.{places:04}"))
}

/// Sign, digits before and digits behind the point, the exponent worked in; `None` where they are too many.
fn digits(text: &str) -> Option<(bool, String, String)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let all = format!("{whole}{fraction}");
    if all.bytes().all(|digit| digit == b'0') {
        return Some((false, "0".to_owned(), String::new()));
    }
    let exponent = match exponent {
        None => 0,
        Some(text) => text.strip_prefix('+').unwrap_or(text).parse::<i64>().ok()?,
    };
    // Where the point stands among all digits, leading zeros left out.
    let leading = all.len() - all.trim_start_matches('0').len();
    let significant = all.get(leading..)?;
    let point = i64::try_from(whole.len())
        .ok()?
        .checked_sub(i64::try_from(leading).ok()?)?
        .checked_add(exponent)?;
    let Ok(before) = usize::try_from(point) else {
        // Below one: so many zeros behind the point, of which more than five change nothing.
        let zeros = usize::try_from(point.unsigned_abs()).ok()?.min(PLACES + 1);
        let fraction = format!("{}{significant}", "0".repeat(zeros));
        return Some((negative, "0".to_owned(), fraction));
    };
    if before > MAX_DIGITS {
        return None;
    }
    if before >= significant.len() {
        let zeros = "0".repeat(before - significant.len());
        return Some((negative, format!("{significant}{zeros}"), String::new()));
    }
    let (whole, fraction) = significant.split_at(before);
    let whole = if whole.is_empty() { "0" } else { whole };
    Some((negative, whole.to_owned(), fraction.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Number {
        Number::Decimal(text.to_owned())
    }

    #[test]
    fn whole_numbers_are_longs_however_they_are_written() {
        for (text, value) in [
            ("0", 0),
            ("-0", 0),
            ("-0.0", 0),
            ("5", 5),
            ("5.0", 5),
            ("-5.000", -5),
            ("1e3", 1000),
            ("1.5e1", 15),
            ("120e-1", 12),
            ("0e999999999999999999999", 0),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(number(text, false), Number::Long(value), "{text}");
        }
    }

    #[test]
    fn other_numbers_have_four_places() {
        for (text, value) in [
            ("0.1", "0.1000"),
            ("-2.5", "-2.5000"),
            ("500.00004", "500.0000"),
            ("500.00005", "500.0001"),
            ("0.99999", "1.0000"),
            ("1e-3", "0.0010"),
            ("5e-5", "0.0001"),
            ("1e-5", "0.0000"),
            ("-1e-999999", "0.0000"),
            ("922337203685477.5807", "922337203685477.5807"),
        ] {
            assert_eq!(number(text, false), decimal(value), "{text}");
        }
        for (text, value) in [("7", "7.0000"), ("1e2", "100.0000"), ("-0", "0.0000")] {
            assert_eq!(number(text, true), decimal(value), "{text}");
        }
    }

    #[test]
    fn what_neither_holds_stays_text() {
        for text in [
            "9223372036854775808",
            "1e400",
            "1e99999999999999999999",
            "922337203685477.5808",
            "922337203685477.58075",
            "x",
            "",
        ] {
            assert_eq!(number(text, false), Number::Text, "{text}");
        }
        assert_eq!(number("922337203685478", true), Number::Text);
    }
}
