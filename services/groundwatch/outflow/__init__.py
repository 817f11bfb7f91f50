"""What groundwatch tells others of: every outcome as an evaluation of the judged call, alarms as webhooks."""
