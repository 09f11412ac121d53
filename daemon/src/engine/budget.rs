//! How many calls one run may still make.

/// The run has used up its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool-call budget exhausted (execution.max_tool_calls={max})")]
pub(super) struct Exhausted {
    /// The limit.
    pub max: u64,
}

/// Counts the calls of one run; every attempt counts, whether it is allowed or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    max: u64,
    used: u64,
}

impl Budget {
    /// A budget of `max` calls.
    pub(super) fn new(max: u64) -> Self {
        Self { max, used: 0 }
    }

    /// Takes one call out of the budget.
    pub(super) fn take(&mut self) -> Result<(), Exhausted> {
        if self.used >= self.max {
            return Err(Exhausted { max: self.max });
        }
        self.used += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_allowed_number_of_calls_is_given_out() {
        let mut budget = Budget::new(2);
        assert_eq!(budget.take(), Ok(()));
        assert_eq!(budget.take(), Ok(()));
        assert_eq!(budget.take(), Err(Exhausted { max: 2 }));
        assert_eq!(budget.take(), Err(Exhausted { max: 2 }));
        assert!(
            Exhausted { max: 2 }
                .to_string()
                .contains("max_tool_calls=2")
        );
    }
}
