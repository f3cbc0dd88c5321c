"""Programs as rows: functions, fusions and models that tests ask about and `tools.bench` measures."""
