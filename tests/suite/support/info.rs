//! What INFO says.

use super::{Server, bytes};

impl Server {
    /// A field of any section of INFO, modules' included; panics if it is not there.
    #[track_caller]
    pub fn info_field(&self, field: &str) -> String {
        self.find_info_field(field).unwrap_or_else(|| panic!("INFO has no field {field}"))
    }

    /// A field of INFO that is an integer.
    #[track_caller]
    pub fn info_number(&self, field: &str) -> i64 {
        let text = self.info_field(field);
        text.parse().unwrap_or_else(|_| panic!("INFO's {field} is no integer: {text:?}"))
    }

    #[track_caller]
    pub fn find_info_field(&self, field: &str) -> Option<String> {
        let reply = bytes(&self.conn().ok(("INFO", "everything")));
        find(&String::from_utf8_lossy(&reply), field)
    }

    /// How many clients the server holds blocked.
    #[track_caller]
    pub fn blocked_clients(&self) -> i64 {
        self.info_number("blocked_clients")
    }
}

/// The value of `field` in INFO's text.
pub fn find(text: &str, field: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::to_owned)
}
