"""What tests of programs that use Penstock need; nothing here is meant for production."""
