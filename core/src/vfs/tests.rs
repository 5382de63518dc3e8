//! Path-walk and system-call tests.
