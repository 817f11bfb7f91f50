"""Does the monitor see the truth, where the truth is known exactly? And is what is promised of it so?

Every LVLM of the miniature world describes held-out scenes; the monitor's own engines judge the answers,
FaithScore without any reference; and what they say is held against what the world's grammar reads in the
same answers. The truth uses none of the monitor's parts.
"""
