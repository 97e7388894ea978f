"""Categories as edited, in forms that other programs read: tables, COCO, folders of links or copies."""
