"""Plans found below paths, read with what they name, and handed to `kvplan.checking`."""
