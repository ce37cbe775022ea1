//! The report as `JUnit` XML, which every CI system reads.

use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::{CaseReport, Report, Verdict};

impl Report {
    /// The report as `JUnit` XML: a test suite for each group.
    ///
    /// # Errors
    /// If the XML can't be written, which is a fault of the writer.
    pub fn to_junit(&self) -> Result<String, SerializeError> {
        let mut report = quick_junit::Report::new(format!("conformance of {}", self.subject));
        report.set_time(self.took);
        for (group, cases) in self.groups() {
            let mut suite = TestSuite::new(group.name());
            suite.set_time(cases.iter().map(|case| case.took).sum());
            suite.add_property(("seed", self.seed.to_string().as_str()));
            suite.add_test_cases(cases.into_iter().map(test_case));
            report.add_test_suite(suite);
        }
        report.to_string()
    }
}

fn test_case(case: &CaseReport) -> TestCase {
    let status = match &case.verdict {
        Verdict::Passed => TestCaseStatus::success(),
        Verdict::Failed { why } => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(why.as_str());
            status
        }
        Verdict::NotApplicable { reason } => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("not applicable: {reason}"));
            status
        }
    };
    let mut test = TestCase::new(case.name, status);
    test.set_classname(case.group.name()).set_time(case.took);
    test.add_property(("calls", case.figures.calls.to_string().as_str()));
    test.add_property(("differences", case.figures.differences.to_string().as_str()));
    test
}
