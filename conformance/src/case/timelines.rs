//! Other people's faults, as timelines at given instants.

use super::case_list;

case_list! { Timelines: }
