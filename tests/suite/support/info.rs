//! What INFO says.

use super::{Conn, Server, bytes};

impl Server {
    /// A field of any section of INFO, modules' included; panics if it is not there.
    #[track_caller]
    pub fn info_field(&self, field: &str) -> String {
        self.find_info_field(field).unwrap_or_else(|| panic!("INFO has no field {field}"))
    }

    /// A field of INFO that is an integer.
    #[track_caller]
    pub fn info_number(&self, field: &str) -> i64 {
        number(field, &self.info_field(field))
    }

    #[track_caller]
    pub fn find_info_field(&self, field: &str) -> Option<String> {
        find(&everything(&mut self.conn()), field)
    }

    /// Processor time that the server's main thread has used since it started, in ms. What others do on the machine changes
    /// it little, unlike the time by the clock.
    #[track_caller]
    pub fn processor_ms(&self) -> f64 {
        let info = everything(&mut self.conn());
        let seconds = |field: &str| {
            find(&info, field).and_then(|text| text.parse::<f64>().ok()).expect("seconds of the processor")
        };
        (seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread")) * 1_000.0
    }

    /// Processor time, in ms, that the server's main thread needs to do this twenty times.
    #[track_caller]
    pub fn processor_ms_of_twenty(&self, mut does: impl FnMut()) -> f64 {
        let before = self.processor_ms();
        (0..20).for_each(|_| does());
        self.processor_ms() - before
    }

    /// How many clients the server holds blocked.
    #[track_caller]
    pub fn blocked_clients(&self) -> i64 {
        self.info_number("blocked_clients")
    }
}

/// An integer of INFO, asked on an open connection: the others open one for each question, and the server may still be
/// closing the last.
#[track_caller]
pub fn info_number_on(conn: &mut Conn, field: &str) -> i64 {
    let text = find(&everything(conn), field).unwrap_or_else(|| panic!("INFO has no field {field}"));
    number(field, &text)
}

#[track_caller]
fn everything(conn: &mut Conn) -> String {
    String::from_utf8_lossy(&bytes(&conn.ok(("INFO", "everything")))).into_owned()
}

#[track_caller]
fn number(field: &str, text: &str) -> i64 {
    text.parse().unwrap_or_else(|_| panic!("INFO's {field} is no integer: {text:?}"))
}

/// The value of `field` in INFO's text.
pub fn find(text: &str, field: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::to_owned)
}
